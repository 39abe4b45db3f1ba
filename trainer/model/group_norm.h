// Group normalisation (Wu and He, arXiv 1803.08494) with the same bits for any number of threads: the library's
// gradient of groups of several channels has others (seen with AVX-512), so a group of a sample is one thread's.
#ifndef TRAINYARD_TRAINER_MODEL_GROUP_NORM_H_
#define TRAINYARD_TRAINER_MODEL_GROUP_NORM_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trainyard {

// x: (B, C, ...) float32, weight, bias: (C) float32 -> x's shape; differentiable. REQUIRES: `groups` divides C.
at::Tensor NormOfGroups(const at::Tensor& x, int64_t groups, const at::Tensor& weight, const at::Tensor& bias,
                        double eps);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MODEL_GROUP_NORM_H_
