// Where gradients leave a unit for what it was given.
#ifndef TRAINYARD_TRAINER_PARALLEL_UNIT_BORDER_H_
#define TRAINYARD_TRAINER_PARALLEL_UNIT_BORDER_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace trainyard {

// The same values, behind a border where they have a gradient: backward calls `passed`, where there is one, when the
// gradients of all of them are whole, and gives them on. A value that is used several times behind a border is one
// summand beyond it: without one its uses would be added to what others use, one by one, and whether a unit is put
// together or computed again would change the order of that sum.
std::vector<at::Tensor> Behind(at::TensorList values, std::function<void()> passed = {});

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_PARALLEL_UNIT_BORDER_H_
