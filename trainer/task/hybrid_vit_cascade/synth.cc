#include "trainer/task/hybrid_vit_cascade/synth.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "trainer/base/file.h"
#include "trainer/base/for_each.h"
#include "trainer/base/progress.h"
#include "trainer/base/text.h"
#include "trainer/data/nifti.h"
#include "trainer/data/png_file.h"
#include "trainer/task/hybrid_vit_cascade/phantom.h"
#include "trainer/task/hybrid_vit_cascade/radiograph.h"

namespace trainyard::hvc {
namespace {

constexpr double kExtentMm = 360;

struct Size {
  int64_t patients, voxels, pixels;
};
// The full size has the guide's volumes, X-rays and number of samples.
const std::map<std::string, Size> kSizes = {
    {"tiny", {20, 48, 64}}, {"small", {240, 64, 64}}, {"full", {1000, 256, 512}}};

std::string NameOf(int64_t patient) { return Format("patient-%04lld", static_cast<long long>(patient)); }

PngImage GreyImage(std::span<const double> image, int64_t size, int64_t pixels) {
  PngImage png{.pixels = {.shape = {pixels, pixels}, .values = {}}, .bits = 8};
  for (const double value : ScaledImage(image, size, pixels))
    png.pixels.values.push_back(static_cast<float>(std::floor(value * 255 + 0.5)));
  return png;
}

NiftiImage Ct(std::span<const int16_t> hu, int64_t size) {
  const double mm = kExtentMm / static_cast<double>(size), middle = kExtentMm / 2 - mm / 2;
  NiftiImage image;
  image.volume = {{size, size, size}, {hu.begin(), hu.end()}};
  // D runs from front to back (+y of RAS is the front), H from head to feet, W from the patient's right to left: the
  // image's left is the patient's right.
  image.affine = {0, 0, -mm, middle, -mm, 0, 0, middle, 0, -mm, 0, middle, 0, 0, 0, 1};
  image.spacing = {mm, mm, mm};
  image.type = NiftiType::kInt16;
  return image;
}

nlohmann::json TruthOf(const Phantom& phantom) {
  const auto parts = [](const std::vector<Ellipsoid>& ellipsoids) {
    nlohmann::json list = nlohmann::json::array();
    for (const Ellipsoid& e : ellipsoids)
      list.push_back({{"centre", e.centre}, {"half_axes", e.half_axes}, {"hu", e.hu}});
    return list;
  };
  return {{"body", parts(phantom.body)},       {"lungs", parts(phantom.lungs)}, {"organs", parts(phantom.organs)},
          {"nodules", parts(phantom.nodules)}, {"spine_hu", phantom.spine_hu},  {"rib_hu", phantom.rib_hu},
          {"noise_hu", phantom.noise_hu}};
}

class PatientSynthesis : public Synthesis {
 public:
  void Declare(FieldTable& t) override {
    t.Choice("--size", size_, {"tiny", "small", "full"}, FieldClass::kIdentity, "how much");
    t.OptInt("--patients", patients_, "auto", 3, FieldClass::kIdentity, "auto: 20 (tiny), 240 (small), 1000 (full)",
             10000);
    t.Int("--seed", seed_, 0, FieldClass::kIdentity, "the same seed gives the same patients");
    t.Int("--threads", threads_, 0, FieldClass::kFree, "0 is one per processor", 1024);
  }

  void Write(const fs::path& out) override {
    RequireWritableDirectory(out, "--out");
    Size size = kSizes.at(size_);
    size.patients = patients_.value_or(size.patients);
    std::vector<nlohmann::json> truths(static_cast<size_t>(size.patients));
    Progress progress("patients", size.patients, ProgressStyleFromEnvironment());
    ForEach(
        size.patients, threads_,
        [&](int64_t patient) { truths[static_cast<size_t>(patient)] = WriteOne(out, size, patient); },
        [&](int64_t done) { progress.Update(done, ""); });
    const IntensityMap map;
    const nlohmann::json truth = {{"source", "thorax"},
                                  {"seed", seed_},
                                  {"voxels", size.voxels},
                                  {"pixels", size.pixels},
                                  {"extent_mm", kExtentMm},
                                  {"mu_water", map.mu_water},
                                  {"drr_window", map.drr_window},
                                  {"axes", "D front to back, H head to feet, W patient's right to left"},
                                  {"patients", truths}};
    WriteFileAtomic(out / "truth.json", truth.dump(1) + "\n");
  }

 private:
  nlohmann::json WriteOne(const fs::path& out, const Size& size, int64_t patient) const {
    const auto seed = static_cast<uint64_t>(seed_), index = static_cast<uint64_t>(patient);
    const std::string name = NameOf(patient);
    const fs::path folder = out / name;
    RequireWritableDirectory(folder, "--out");
    const Phantom phantom = MakePhantom(seed, index);
    const std::vector<int16_t> hu = RenderPhantom(phantom, size.voxels, seed, index);
    const Radiographs images = Radiograph(hu, size.voxels, kExtentMm, {});
    WriteNifti(folder / (name + ".nii.gz"), Ct(hu, size.voxels));
    WritePng(folder / (name + "_pa_drr.png"), GreyImage(images.front, size.voxels, size.pixels));
    WritePng(folder / (name + "_lat_drr.png"), GreyImage(images.side, size.voxels, size.pixels));
    nlohmann::json truth = TruthOf(phantom);
    truth["id"] = name;
    return truth;
  }

  std::string size_ = "small";
  OptionalInt patients_;
  int64_t seed_ = 42;
  int64_t threads_ = 0;
};

}  // namespace

std::unique_ptr<Synthesis> MakeSynthesis() { return std::make_unique<PatientSynthesis>(); }

}  // namespace trainyard::hvc
