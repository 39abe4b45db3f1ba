// The 72 columns of the data set, from what was found on the arteries.
#ifndef TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_LESION_FEATURES_H_
#define TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_LESION_FEATURES_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace trainyard::mace {

enum Artery : size_t { kLm, kLad, kLcx, kRca, kArteries };

struct LesionVoxel {
  int64_t slice;
  double hu;
  double depth;  // of its place, from the top of the volume 0 to the bottom 1
};

struct Lesion {
  Artery artery;
  std::array<double, 3> centre;     // mm
  std::vector<LesionVoxel> voxels;  // of 130 HU or more; may be empty
};

struct Patient {
  double age = 0;
  bool female = false;
  double pixel_area = 0, slice_height = 0;  // mm^2, mm
  std::vector<Lesion> lesions;
};

const std::vector<std::string>& FeatureNames();
// In the order of the names.
std::vector<double> FeaturesOf(const Patient& patient);

}  // namespace trainyard::mace

#endif  // TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_LESION_FEATURES_H_
