// Initial values: a pure function of (seed, parameter's name), so that they depend on neither world size, stage nor
// what else the model holds.
#ifndef TRAINYARD_TRAINER_MODEL_INITIALIZE_H_
#define TRAINYARD_TRAINER_MODEL_INITIALIZE_H_

#include <cstdint>
#include <span>

#include "trainer/model/parameter.h"

namespace trainyard {

// Elements [begin, begin + values.size()). REQUIRES: the parameter has them; begin is a multiple of InitialPart(spec).
void FillInitial(const ParameterSpec& spec, uint64_t seed, std::span<float> values, int64_t begin = 0);

// Parts of so many elements follow from their place alone: threads may make them beside each other. All elements where
// each follows from those before it.
int64_t InitialPart(const ParameterSpec& spec);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MODEL_INITIALIZE_H_
