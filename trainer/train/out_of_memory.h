// Allocations that fail, in words that say what to do about it.
#ifndef TRAINYARD_TRAINER_TRAIN_OUT_OF_MEMORY_H_
#define TRAINYARD_TRAINER_TRAIN_OUT_OF_MEMORY_H_

#include <cstdint>
#include <exception>

#include "trainer/train/plan.h"

namespace trainyard {

// A failed allocation of forward or backward, in the step that makes `step` of them, becomes an OutOfMemoryError that
// names the field to change and a value for it; any other error is returned as it is. `coupled`: Task::batch_coupled.
std::exception_ptr NameWhatIsTooLarge(std::exception_ptr error, const Plan& plan, bool coupled, int64_t step);

// A micro-batch of about half the size, or somewhat less, that cuts a rank's share into equal pieces if there is one.
// REQUIRES: micro > 1.
int64_t SmallerMicro(int64_t share, int64_t micro);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_OUT_OF_MEMORY_H_
