// The tensors of a rank: fp32 master parameters, gradients and moments as flat buffers, and the
// leaves that the model computes with.
#ifndef TRAINYARD_TRAINER_PARALLEL_FLAT_STATE_H_
#define TRAINYARD_TRAINER_PARALLEL_FLAT_STATE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/optim/adamw.h"
#include "trainer/parallel/flat_layout.h"
#include "trainer/parallel/memory_plan.h"

namespace trainyard {

class FlatState {
 public:
  // Allocates everything, 64-byte aligned and zero, padding included. The leaves are views of the
  // master, or with kBf16 bf16 copies of it (except those declared as DType::kFloat32).
  FlatState(FlatLayout layout, Precision precision);

  const FlatLayout& layout() const { return layout_; }

  // (total) float32 each.
  at::Tensor master, gradient, exp_avg, exp_avg_sq;

  // What the optimizer works on.
  AdamWBuffers UpdateBuffers() const;

  // Leaf i belongs to parameter i of the layout, in its shape; requires_grad.
  const std::vector<at::Tensor>& leaves() const { return leaves_; }

  // Fills the master from the parameters' Initial, the same for every world size.
  void Initialize(uint64_t seed);
  // After the master changed: refreshes what the model computes with.
  void PublishParameters();

 private:
  FlatLayout layout_;
  at::Tensor compute_;  // (total) bfloat16, or undefined
  std::vector<at::Tensor> leaves_;
};

std::span<float> Floats(const at::Tensor& flat);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_PARALLEL_FLAT_STATE_H_
