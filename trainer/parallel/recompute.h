// Activation checkpointing (Chen et al., arXiv 1604.06174): of a unit only the inputs are kept for backward, which runs
// its forward once more.
#ifndef TRAINYARD_TRAINER_PARALLEL_RECOMPUTE_H_
#define TRAINYARD_TRAINER_PARALLEL_RECOMPUTE_H_

#include <ATen/core/Tensor.h>

#include "trainer/model/pass.h"

namespace trainyard {

// Returns first(inputs), and in backward uses again(inputs), which must give the same values. Gradients go to `inputs`
// and `parameters`, leaves of which the functions use some; a parameter that several units use still gets one gradient.
// To the bit those of first(inputs), but for a parameter that one unit uses several times and another one, too: each
// unit's are summed first.
at::Tensor Recomputed(const UnitFunction& first, const UnitFunction& again, at::TensorList inputs,
                      at::TensorList parameters);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_PARALLEL_RECOMPUTE_H_
