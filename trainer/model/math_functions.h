// LibTorch's elementwise math functions on CPUs, made safe to call from several threads.
#ifndef TRAINYARD_TRAINER_MODEL_MATH_FUNCTIONS_H_
#define TRAINYARD_TRAINER_MODEL_MATH_FUNCTIONS_H_

namespace trainyard {

// Calls each of them that goes to MKL once, on one element. MKL up to 2024.2 chooses a function's kernel in its first
// call, without a lock: when the first call is made by two threads at once, one of them may compute its half with a
// kernel of half the digits (https://github.com/pytorch/pytorch/issues/188792; measured here: exp off by 1.3e-4
// in three of a hundred starts). Call in one thread, before anything else computes.
void ResolveMathFunctions();

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MODEL_MATH_FUNCTIONS_H_
