// The norm of a flat gradient from fp64 sums over blocks of 64 elements: the same bits however the
// gradient was cut into shards or buckets.
#ifndef TRAINYARD_TRAINER_PARALLEL_BLOCK_NORM_H_
#define TRAINYARD_TRAINER_PARALLEL_BLOCK_NORM_H_

#include <span>
#include <vector>

namespace trainyard {

// Computes sqrt(sum of squares) of `flat`; `scratch` holds the block sums and is resized as needed.
// Not finite if any element is not. REQUIRES: the size is a multiple of 64, padding is zero.
double BlockNorm(std::span<const float> flat, std::vector<double>& scratch);

// torch.nn.utils.clip_grad_norm_: min(1, clip / (norm + 1e-6)); 1 when clip is 0.
float ClipScale(double norm, double clip);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_PARALLEL_BLOCK_NORM_H_
