// A made-up chest: a CT volume with calcified lesions on the coronary arteries, and what a reader would measure of it.
#ifndef TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_PHANTOM_H_
#define TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_PHANTOM_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/data/nifti.h"
#include "trainer/task/mace_survival/lesion_features.h"

namespace trainyard::mace {

struct Phantom {
  NiftiImage image;              // int16 Hounsfield units, 200 x 200 x 120 mm around the heart
  std::vector<double> features;  // as FeatureNames
  // What the risk is made of.
  double agatston = 0, lesions = 0, spread = 0, age = 0, female = 0;  // spread: arteries that are calcified
};

// Subject `index` of a cohort: a pure function of the arguments, the same bytes on every machine.
//
// Age shows in the spine's density and the heart's size, sex in the fat around the body, and what the features say of
// the arteries is counted from the painted voxels: a lesion's are those that it fills by half or more, of 130 HU or
// more (Agatston et al., JACC 1990), each once, where lesions overlap. Lesions grow more frequent with age, in men, and
// with a disposition that shows in nothing else.
Phantom MakePhantom(const std::array<int64_t, 3>& voxels, uint64_t seed, int64_t index);

}  // namespace trainyard::mace

#endif  // TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_PHANTOM_H_
