#include "trainer/task/mace_survival/volumes.h"

#include <algorithm>
#include <span>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/hash.h"
#include "trainer/base/text.h"
#include "trainer/data/nifti.h"

namespace trainyard::mace {
namespace {

// Places of a batch are compared as float32, which holds whole numbers up to this one.
constexpr int64_t kPlaces = int64_t{1} << 24;

class Volumes : public Dataset {
 public:
  Volumes(const Cohort& cohort, std::vector<const Subject*> subjects, const VolumeOptions& options,
          const std::optional<SmartCacheOptions>& cache)
      : cohort_(cohort), subjects_(std::move(subjects)), prefix_(PreparationOf(options)) {
    if (options.augment) augment_.RandomFlip(0.5, 0).RandomFlip(0.5, 1);
    // A turn by a right angle changes the shape of what is no square.
    if (options.augment && options.size[0] == options.size[1]) augment_.RandomRotate90(0.5, 0, 1);
    if (!cache || cache->folder.empty()) return;  // a run without a cache is what one with it is compared to
    cache_.emplace(
        *cache, [this](int64_t id, StageTimes* times) { return std::vector<Volume>{Prepare(SubjectOf(id), times)}; },
        [this](int64_t id) { return StampOf({SubjectOf(id).image}, prefix_.description()); });
  }
  int64_t size() const override { return std::ssize(subjects_); }
  std::string fingerprint(const Tick& tick) const override { return cohort_.fingerprint(tick); }
  std::string glance(const Tick& tick) const override { return cohort_.glance(tick); }
  std::unique_ptr<Sample> Read(const SampleKey& key) const override {
    const Subject& subject = SubjectOf(key.id);
    auto sample = std::make_unique<VolumeSample>();
    sample->subject = &subject;
    sample->place = static_cast<float>((key.epoch * size() + key.position) % kPlaces);
    sample->volume = augment_(Prepared(key), key.key, &times_);
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
  DatasetTimes times() const override {
    const SmartCache::Counts counts = cache_ ? cache_->counts() : SmartCache::Counts();
    return {times_.decode, times_.transform, counts.hits, counts.misses};
  }

 private:
  const Subject& SubjectOf(int64_t id) const { return *subjects_[static_cast<size_t>(id)]; }
  Volume Prepared(const SampleKey& key) const {
    return cache_ ? std::move(cache_->Get(key, &times_).front()) : Prepare(SubjectOf(key.id), &times_);
  }
  Volume Prepare(const Subject& subject, StageTimes* times) const {
    return prefix_(ReadVolume(subject, times), 0, times);
  }
  Volume ReadVolume(const Subject& subject, StageTimes* times) const {
    try {
      Volume volume = ReadNifti(subject.image, times).volume;
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
  const Transforms prefix_;
  Transforms augment_;
  mutable StageTimes times_;
  mutable std::optional<SmartCache> cache_;  // the last: its thread reads what stands above
};

}  // namespace

Transforms PreparationOf(const VolumeOptions& options) {
  return Transforms()
      .Window({static_cast<float>(options.low), static_cast<float>(options.high), 0, 1})
      .Area(options.size);
}

std::unique_ptr<Dataset> MakeVolumes(const Cohort& cohort, std::vector<const Subject*> subjects,
                                     const VolumeOptions& options, const std::optional<SmartCacheOptions>& cache) {
  return std::make_unique<Volumes>(cohort, std::move(subjects), options, cache);
}

}  // namespace trainyard::mace
