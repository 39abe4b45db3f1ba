#include "trainer/task/mace_survival/volumes.h"

#include <algorithm>
#include <span>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/hash.h"
#include "trainer/base/text.h"
#include "trainer/data/nifti.h"
#include "trainer/data/transform.h"

namespace trainyard::mace {
namespace {

// Places of a batch are compared as float32, which holds whole numbers up to this one.
constexpr int64_t kPlaces = int64_t{1} << 24;

class Volumes : public Dataset {
 public:
  Volumes(const Cohort& cohort, std::vector<const Subject*> subjects, const VolumeOptions& options)
      : cohort_(cohort), subjects_(std::move(subjects)) {
    prefix_.Window({static_cast<float>(options.low), static_cast<float>(options.high), 0, 1}).Area(options.size);
    if (options.augment) augment_.RandomFlip(0.5, 0).RandomFlip(0.5, 1);
    // A turn by a right angle changes the shape of what is no square.
    if (options.augment && options.size[0] == options.size[1]) augment_.RandomRotate90(0.5, 0, 1);
  }
  int64_t size() const override { return std::ssize(subjects_); }
  std::string fingerprint(const Tick& tick) const override { return cohort_.fingerprint(tick); }
  std::unique_ptr<Sample> Read(const SampleKey& key) const override {
    const Subject& subject = *subjects_[static_cast<size_t>(key.id)];
    auto sample = std::make_unique<VolumeSample>();
    sample->subject = &subject;
    sample->place = static_cast<float>((key.epoch * size() + key.position) % kPlaces);
    sample->volume = augment_(prefix_(ReadVolume(subject)), key.key);
    return sample;
  }
  uint64_t Hash(const Sample& sample) const override {
    const auto& volume = static_cast<const VolumeSample&>(sample);
    const double targets[] = {volume.subject->outcome.time, volume.subject->outcome.event ? 1.0 : 0.0};
    Xxh3Stream hash;
    hash.Update(std::as_bytes(std::span(volume.volume.values)));
    hash.Update(std::as_bytes(std::span(targets)));
    hash.Update(std::as_bytes(std::span(volume.subject->features)));
    return hash.Digest();
  }

 private:
  Volume ReadVolume(const Subject& subject) const {
    try {
      Volume volume = ReadNifti(subject.image).volume;
      RequireShape(volume, {0, 0, 0}, subject.image);
      if (std::ranges::min(volume.shape) < 2)
        throw DataError(Format("%s: %lld x %lld x %lld voxels; expected two or more along each axis",
                               subject.image.c_str(), static_cast<long long>(volume.shape[0]),
                               static_cast<long long>(volume.shape[1]), static_cast<long long>(volume.shape[2])));
      RequireFinite(volume, subject.image);
      return volume;
    } catch (const DataError& error) {
      cohort_.FailImage(subject, error.what());
    }
  }

  const Cohort& cohort_;
  const std::vector<const Subject*> subjects_;
  Transforms prefix_, augment_;
};

}  // namespace

std::unique_ptr<Dataset> MakeVolumes(const Cohort& cohort, std::vector<const Subject*> subjects,
                                     const VolumeOptions& options) {
  return std::make_unique<Volumes>(cohort, std::move(subjects), options);
}

}  // namespace trainyard::mace
