// initialize.h by the rank's threads.
#ifndef TRAINYARD_TRAINER_MODEL_INITIALIZE_TOGETHER_H_
#define TRAINYARD_TRAINER_MODEL_INITIALIZE_TOGETHER_H_

#include <cstdint>
#include <span>

#include "trainer/model/parameter.h"

namespace trainyard {

// The whole of a parameter; the same values for any number of threads.
void FillInitialTogether(const ParameterSpec& spec, uint64_t seed, std::span<float> values);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MODEL_INITIALIZE_TOGETHER_H_
