// Subjects' volumes as the network takes them.
#ifndef TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_VOLUMES_H_
#define TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_VOLUMES_H_

#include <memory>
#include <optional>

#include "trainer/data/dataset.h"
#include "trainer/data/smart_cache.h"
#include "trainer/data/transform.h"
#include "trainer/data/volume.h"
#include "trainer/task/mace_survival/cohort.h"
#include "trainer/task/mace_survival/options.h"

namespace trainyard::mace {

struct VolumeSample : Sample {
  Volume volume;  // (X, Y, Z), 0 to 1
  const Subject* subject = nullptr;
  float place = 0;  // in the stream: unlike that of every other sample of a batch
};

struct VolumeOptions {
  std::vector<int64_t> size;  // X, Y, Z
  double low = 0, high = 0;   // intensities that become 0 and 1
  bool augment = false;
};

// What is done to every volume alike, before anything random: what a cache keeps.
Transforms PreparationOf(const VolumeOptions& options);

// The volumes of `subjects`, who are the cohort's; it must outlive them. Read throws DataError naming the table's line
// and the file: one that is damaged or truncated, not of three dimensions, empty, or with voxels that are no numbers.
// With `cache`, prepared volumes are kept as it says; the volumes are the same.
std::unique_ptr<Dataset> MakeVolumes(const Cohort& cohort, std::vector<const Subject*> subjects,
                                     const VolumeOptions& options, const std::optional<SmartCacheOptions>& cache = {});

}  // namespace trainyard::mace

#endif  // TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_VOLUMES_H_
