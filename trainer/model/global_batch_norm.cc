#include "trainer/model/global_batch_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/max_pool3d.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "trainer/model/device_ops.h"
#include "trainer/model/planes.h"

namespace trainyard {

void TakePartInGather(const Pass& pass, GatherId gather, int64_t columns, GlobalBatch& batch) {
  // Rows that need a gradient, so that backward takes part as well.
  at::Tensor rows = at::zeros({0, columns}, batch.nothing.options());
  rows.requires_grad_(true);
  batch.nothing = batch.nothing + pass.Gather(gather, rows).sum() * 0;
}

GlobalBatchNorm::GlobalBatchNorm(const Scope& s, int64_t channels, double eps, double momentum)
    : channels(channels),
      eps(eps),
      momentum(momentum),
      weight(s.Parameter("weight", {channels}, {Initial::Kind::kConstant, 1}, {true, DType::kFloat32})),
      bias(s.Parameter("bias", {channels}, {Initial::Kind::kConstant, 0}, {true, DType::kFloat32})),
      mean(s.Buffer("running_mean", {channels}, 0, BufferPolicy::kMean)),
      variance(s.Buffer("running_var", {channels}, 1, BufferPolicy::kMean)),
      batches(s.Buffer("num_batches_tracked", {}, 0, BufferPolicy::kMean)),
      gather(s.Gather(2 * channels + 1)) {}

WithMoments GlobalBatchNorm::Moments(const Pass& pass, const at::Tensor& x, GlobalBatch& batch) const {
  if (!pass.training() || !x.requires_grad()) {
    if (pass.training()) TakePartInGather(pass, gather, 2 * channels + 1, batch);
    return {x, at::stack({pass[mean], pass[variance]})};
  }
  const bool host = x.is_cpu();
  WithMoments of =
      host ? SampleMoments(x.contiguous()) : WithMoments{x, device_ops::SampleMoments(x.to(at::kFloat).contiguous())};
  const at::Tensor rows = pass.Gather(gather, at::cat({batch.present.unsqueeze(1), of.moments}, 1));
  of.moments = host ? MomentsTogether(rows) : device_ops::MomentsTogether(rows);
  const at::NoGradGuard no_graph;
  // Where the rows are: no forward waits for a device.
  const at::Tensor values = rows.select(1, 0).sum().to(at::kDouble) * static_cast<double>(Planes(x).places);
  const at::Tensor unbiased = at::where(values > 1, values / (values - 1), 1.0);
  pass.Stage(mean, pass[mean] * (1 - momentum) + of.moments[0] * momentum);
  pass.Stage(variance, pass[variance] * (1 - momentum) + of.moments[1] * (unbiased * momentum));
  pass.Stage(batches, pass[batches] + 1);
  return of;
}

at::Tensor GlobalBatchNorm::operator()(const Pass& pass, const at::Tensor& x, const at::Tensor& moments,
                                       AfterNorm after) const {
  if (x.is_cpu()) return Normalised(x.contiguous(), moments, pass[weight], pass[bias], eps, after);
  const at::Tensor wide = x.to(at::kFloat).contiguous();
  at::Tensor y = device_ops::Normalise(wide, moments, pass[weight], pass[bias], eps).to(x.scalar_type());
  if (after != AfterNorm::kNothing) y = at::relu(y);
  return after == AfterNorm::kReluMaxPool ? at::max_pool3d(y, {3, 3, 3}, {2, 2, 2}, {1, 1, 1}) : y;
}

}  // namespace trainyard
