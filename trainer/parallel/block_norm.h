// The norm of a flat gradient from fp64 sums over blocks of 64 elements: the same bits however the
// gradient was cut into shards or buckets.
#ifndef TRAINYARD_TRAINER_PARALLEL_BLOCK_NORM_H_
#define TRAINYARD_TRAINER_PARALLEL_BLOCK_NORM_H_

#include <cstdint>
#include <span>
#include <vector>

namespace trainyard {

// Sets blocks[i] to the sum of the squares of values [64 i, 64 i + 64). Not finite if any of them is not.
// REQUIRES: 64 values for each block; padding is zero.
void SumBlocks(std::span<const float> values, std::span<double> blocks);

// The norm of what these blocks are the sums of, added in their order.
double NormOf(std::span<const double> blocks);

// torch.nn.utils.clip_grad_norm_: min(1, clip / (norm + 1e-6)); 1 when clip is 0.
float ClipScale(double norm, double clip);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_PARALLEL_BLOCK_NORM_H_
