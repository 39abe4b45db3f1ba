#include "trainer/model/stem.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "trainer/kernels/stem.h"
#include "trainer/model/with_kernels.h"
#include "trainer/threads/parallel_for.h"

namespace trainyard {
namespace {

using kernels::Bf16;

kernels::StemShape ShapeOf(const at::Tensor& x, int64_t outputs, int64_t stride) {
  return {.outputs = outputs, .size = {x.size(2), x.size(3), x.size(4)}, .stride = stride};
}

}  // namespace

bool IsStem(const at::Tensor& x, const at::Tensor& weight, at::IntArrayRef stride, at::IntArrayRef padding) {
  const auto all = [](at::IntArrayRef values, int64_t value) {
    return std::ranges::all_of(values, [=](int64_t of) { return of == value; });
  };
  return x.scalar_type() == at::kBFloat16 && x.dim() == 5 && x.numel() > 0 && weight.size(1) == 1 &&
         all(weight.sizes().slice(2), kernels::kStemSide) && all(padding, kernels::kStemPadding) &&
         (all(stride, 1) || all(stride, 2)) && kernels::Stem() != nullptr;
}

at::Tensor ConvolveStem(const at::Tensor& x, const at::Tensor& weight, int64_t stride) {
  constexpr int64_t kPlanes = 8;  // of a task: each pads the three planes before and behind its own once more
  const at::Tensor in = x.contiguous(), w = weight.contiguous();
  const kernels::StemShape shape = ShapeOf(in, weight.size(0), stride);
  const auto [D, H, W] = shape.places();
  at::Tensor y = at::empty({in.size(0), shape.outputs, D, H, W}, in.options());
  const int64_t of_x = in.numel() / in.size(0), of_y = y.numel() / in.size(0), tasks = (D + kPlanes - 1) / kPlanes;
  ParallelFor(0, in.size(0) * tasks, 1, [&, depth = D](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t sample = i / tasks, plane = i % tasks * kPlanes;
      kernels::Stem()->forward(shape, Data<Bf16>(in) + sample * of_x, Data<Bf16>(w), Data<Bf16>(y) + sample * of_y,
                               plane, std::min(plane + kPlanes, depth));
    }
  });
  return y;
}

at::Tensor StemWeightGradient(const at::Tensor& dy, const at::Tensor& x, int64_t stride) {
  const at::Tensor in = x.contiguous(), gradient = dy.contiguous();
  const kernels::StemShape shape = ShapeOf(in, dy.size(1), stride);
  constexpr int64_t kSide = kernels::kStemSide;
  at::Tensor sum = at::zeros({shape.outputs, 1, kSide, kSide, kSide}, at::kFloat);
  const int64_t of_x = in.numel() / in.size(0), of_y = gradient.numel() / in.size(0);
  for (int64_t sample = 0; sample < in.size(0); ++sample)
    kernels::Stem()->weight_gradient(shape, Data<Bf16>(in) + sample * of_x, Data<Bf16>(gradient) + sample * of_y,
                                     Data<float>(sum));
  return sum;
}

}  // namespace trainyard
