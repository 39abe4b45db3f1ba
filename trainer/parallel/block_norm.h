// The norm of a flat gradient from fp64 sums over blocks of 64 elements: the same bits however the
// gradient was cut into shards or buckets.
#ifndef TRAINYARD_TRAINER_PARALLEL_BLOCK_NORM_H_
#define TRAINYARD_TRAINER_PARALLEL_BLOCK_NORM_H_

#include <cstdint>
#include <span>
#include <vector>

namespace trainyard {

// Sets blocks[i], begin <= 64 i < end, to the sum of the squares of the 64 elements of block i of `flat`. Not finite if
// any element is not. REQUIRES: `begin` and `end` are multiples of 64, padding is zero.
void SumBlocks(std::span<const float> flat, int64_t begin, int64_t end, std::span<double> blocks);

// The norm of what these blocks are the sums of, added in their order.
double NormOf(std::span<const double> blocks);

// torch.nn.utils.clip_grad_norm_: min(1, clip / (norm + 1e-6)); 1 when clip is 0.
float ClipScale(double norm, double clip);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_PARALLEL_BLOCK_NORM_H_
