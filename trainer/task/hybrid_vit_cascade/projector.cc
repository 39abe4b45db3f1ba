#include "trainer/task/hybrid_vit_cascade/projector.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/upsample_bilinear2d.h>

#include "trainer/model/rows.h"

namespace trainyard::hvc {
namespace {

// x: (B, rows, columns, n) -> (B, rows, columns), the mean of the last axis.
at::Tensor MeanAlong(const at::Tensor& x) { return x.mean(-1); }

// Mean of a volume's values along a beam -> pixels.
at::Tensor Pixels(const at::Tensor& mean, const at::Tensor& extent, const IntensityMap& map) {
  const double hu_per_unit = (map.hu_high - map.hu_low) / 2;
  const at::Tensor hu = (mean + 1) * hu_per_unit + map.hu_low;
  const at::Tensor integral = (hu / 1000 + 1) * (map.mu_water / map.drr_window) * extent.view({-1, 1, 1});
  return integral.clamp(0, 1) * 2 - 1;
}

}  // namespace

std::vector<at::Tensor> Project(const at::Tensor& volume, const at::Tensor& extent, const IntensityMap& map) {
  const at::Tensor x = volume.squeeze(1);
  const at::Tensor front = MeanAlong(x.permute({0, 2, 3, 1}).contiguous());
  const at::Tensor side = MeanAlong(x.permute({0, 2, 1, 3}).contiguous());
  return {Pixels(front, extent.select(1, kFront), map), Pixels(side, extent.select(1, kSide), map)};
}

at::Tensor PhysicsLoss(const at::Tensor& volume, const at::Tensor& extent, const at::Tensor& xrays,
                       const IntensityMap& map) {
  const std::vector<at::Tensor> views = Project(volume.clamp(-1, 1), extent, map);
  const int64_t size = xrays.size(-1);
  at::Tensor sum;
  for (int64_t view = 0; view < kViews; ++view) {
    const at::Tensor scaled =
        at::upsample_bilinear2d(views[static_cast<size_t>(view)].unsqueeze(1), {size, size}, false);
    const at::Tensor error = SumOfEach((scaled - xrays.select(1, view)).square());
    sum = sum.defined() ? sum + error : error;
  }
  return sum / static_cast<double>(kViews * size * size);
}

}  // namespace trainyard::hvc
