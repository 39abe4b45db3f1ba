#include "trainer/task/hybrid_vit_cascade/patients.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <span>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/hash.h"
#include "trainer/base/random.h"
#include "trainer/base/text.h"
#include "trainer/data/nifti.h"
#include "trainer/data/png_file.h"
#include "trainer/data/sample_stream.h"
#include "trainer/data/transform.h"

namespace trainyard::hvc {
namespace {

constexpr size_t kFiles = 3;     // of a patient
constexpr size_t kGlanced = 64;  // patients

// The one file of these endings. Throws DataError when there is none, or more than one.
fs::path TheFile(const fs::path& folder, const char* what, std::initializer_list<const char*> endings) {
  const std::string id = folder.filename().string();
  std::vector<std::string> wanted, found;
  for (const char* ending : endings) {
    wanted.push_back(id + ending);
    if (fs::exists(LookAt(folder / wanted.back()))) found.push_back(wanted.back());
  }
  if (found.size() == 1) return folder / found.front();
  if (found.empty()) throw DataError(folder.string() + ": no " + what + "; expected one of " + Join(wanted));
  throw DataError(folder.string() + ": more than one " + what + ": " + Join(found));
}

Volume ReadXray(const fs::path& path) {
  PngImage image = ReadPng(path);
  if (image.pixels.shape.size() != 2) throw DataError(path.string() + ": an image in colours; expected a grey one");
  const auto [low, high] = std::ranges::minmax_element(image.pixels.values);
  if (*low == *high)
    throw DataError(path.string() + Format(": an empty image: every pixel is %g", static_cast<double>(*low)));
  for (float& value : image.pixels.values) value /= image.bits == 16 ? 65535.0f : 255.0f;
  return std::move(image.pixels);
}

void RequireVolume(const fs::path& path, const Volume& volume) {
  std::vector<std::string> sides;
  for (const int64_t side : volume.shape) sides.push_back(std::to_string(side));
  if (volume.shape.size() != 3 || *std::min_element(volume.shape.begin(), volume.shape.end()) < 2)
    throw DataError(path.string() + ": a volume of shape (" + Join(sides) +
                    "); expected three dimensions of two voxels or more");
  RequireFinite(volume, path);
  const auto [low, high] = std::minmax_element(volume.values.begin(), volume.values.end());
  if (*low == *high)
    throw DataError(path.string() + Format(": an empty volume: every voxel is %g", static_cast<double>(*low)));
}

// Of the patients' names and what `of` makes of each file.
std::string DigestOf(const std::vector<PatientFiles>& patients,
                     const std::function<uint64_t(const fs::path& file)>& of) try {
  Xxh3Stream hash;
  for (const PatientFiles& patient : patients) {
    hash.Update(std::as_bytes(std::span(patient.id)));
    for (const fs::path& file : {patient.volume, patient.front, patient.side}) {
      const std::array<uint64_t, 1> content = {of(file)};
      hash.Update(std::as_bytes(std::span(content)));
    }
  }
  return HexDigest(hash.Digest());
} catch (const RefusedPathError& error) {
  throw DataError(error.what());
}

}  // namespace

std::vector<PatientFiles> FindPatients(const fs::path& path) try {
  if (!fs::is_directory(LookAt(path))) throw DataError("data.path: " + path.string() + " is no folder");
  std::vector<fs::path> folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    // The root of a volume may have a lost+found, which is root's.
    if (name.starts_with(".") || name == "lost+found") continue;
    if (entry.is_directory()) folders.push_back(entry.path());
    if (entry.is_symlink() && !entry.exists())
      throw DataError(entry.path().string() + ": a link to what is not there; it may be a patient's folder");
  }
  std::sort(folders.begin(), folders.end());
  if (folders.empty()) throw DataError("data.path: " + path.string() + " holds no folder of a patient");
  std::vector<PatientFiles> patients;
  for (const fs::path& folder : folders)
    patients.push_back({folder.filename().string(), TheFile(folder, "volume", {".nii.gz", ".nii"}),
                        TheFile(folder, "X-ray from the front", {"_pa_drr.png", "_pa.png", "_frontal.png"}),
                        TheFile(folder, "X-ray from the side", {"_lat_drr.png", "_lat.png", "_lateral.png"})});
  return patients;
} catch (const RefusedPathError& error) {
  throw DataError(error.what());
} catch (const fs::filesystem_error& error) {
  if (!IsRefusal(error.code().value())) throw;
  throw DataError("data.path: " + path.string() + ": " + error.code().message());
}

std::string FingerprintOf(const std::vector<PatientFiles>& patients, const Tick& tick) {
  return DigestOf(patients, [&](const fs::path& file) { return InputFile(file).Checksum(tick); });
}

std::string GlanceOf(const std::vector<PatientFiles>& patients, const Tick& tick) {
  const size_t step = patients.size() / kGlanced + 1;  // all sizes, and of some patients the content
  size_t place = 0;
  return DigestOf(patients, [&](const fs::path& file) {
    if (tick) tick();
    return place++ / kFiles % step == 0 ? InputFile(file).Glance() : SizeOf(file);
  });
}

Split SplitPatients(int64_t patients, double val_fraction, double test_fraction, uint64_t seed) {
  const auto part = [patients](double fraction) {
    return static_cast<int64_t>(std::floor(fraction * static_cast<double>(patients)));
  };
  const int64_t val = std::max<int64_t>(1, part(val_fraction)), test = part(test_fraction);
  if (val + test >= patients)
    throw DataError(
        Format("data.path: of %lld patients %lld are for validation and %lld for tests; none is left to "
               "train on",
               static_cast<long long>(patients), static_cast<long long>(val), static_cast<long long>(test)));
  const Permutation order(static_cast<uint64_t>(patients), HashKey(seed, NameKey("split")));
  Split split;
  for (int64_t i = 0; i < patients; ++i) {
    const auto patient = static_cast<int64_t>(order(static_cast<uint64_t>(i)));
    (i < val ? split.val : i < val + test ? split.test : split.train).push_back(patient);
  }
  for (std::vector<int64_t>* ids : {&split.train, &split.val, &split.test}) std::sort(ids->begin(), ids->end());
  return split;
}

Patient ReadPatient(const PatientFiles& files) {
  NiftiImage image = ReadNifti(files.volume);
  RequireVolume(files.volume, image.volume);
  constexpr double kMostMm = 1000;
  for (const double side : image.voxel_mm) {
    if (!(side > 0 && side <= kMostMm))
      throw DataError(
          files.volume.string() +
          Format(": a voxel of %g mm (its sform, or without one pixdim at byte 76); expected more than 0 and "
                 "at most %g",
                 side, kMostMm));
  }
  const auto extent = [&image](size_t axis) {
    return image.voxel_mm[axis] * static_cast<double>(image.volume.shape[axis]);
  };
  Patient patient;
  patient.extent_mm = {extent(0), extent(2)};
  patient.ct = std::move(image.volume);
  patient.front = ReadXray(files.front);
  patient.side = ReadXray(files.side);
  return patient;
}

}  // namespace trainyard::hvc
