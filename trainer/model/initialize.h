// Initial values: a pure function of (seed, parameter's name), so that they depend on neither world size, stage nor
// what else the model holds.
#ifndef TRAINYARD_TRAINER_MODEL_INITIALIZE_H_
#define TRAINYARD_TRAINER_MODEL_INITIALIZE_H_

#include <cstdint>
#include <span>

#include "trainer/model/parameter.h"

namespace trainyard {

// REQUIRES: as many values as the parameter has elements.
void FillInitial(const ParameterSpec& spec, uint64_t seed, std::span<float> values);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MODEL_INITIALIZE_H_
