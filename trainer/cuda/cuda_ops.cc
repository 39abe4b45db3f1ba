#include "trainer/cuda/cuda_ops.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sum.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <tuple>

#include "trainer/cuda/cuda_error.h"
#include "trainer/cuda/element_of.h"
#include "trainer/cuda/row_kernels.h"

namespace trainyard {
namespace {

using at::Tensor;

// As the kernels of a norm want it: contiguous, at an address that is a multiple of 16 bytes.
Tensor Aligned(const Tensor& given) {
  const Tensor x = given.contiguous();
  return reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0 ? x : x.clone();
}

cudaStream_t StreamOf(const Tensor& x) { return c10::cuda::getCurrentCUDAStream(x.get_device()).stream(); }

std::tuple<Tensor, Tensor, Tensor> Norm(const Tensor& given, const Tensor& by, const Tensor& plus, double eps) {
  const c10::cuda::CUDAGuard guard(given.device());
  const Tensor x = Aligned(given), gamma = Aligned(by), beta = Aligned(plus), y = at::empty_like(x);
  const int64_t width = x.size(-1), rows = x.numel() / width;
  TORCH_CHECK(gamma.numel() == width && beta.numel() == width && gamma.scalar_type() == at::kFloat,
              "a norm of rows of ", width, " with weights of ", gamma.sizes(), " and ", beta.sizes());
  const Tensor mean = at::empty({rows}, gamma.options()), rstd = at::empty({rows}, gamma.options());
  cuda::NormArgs args{};
  args.x = x.const_data_ptr();
  args.gamma = gamma.const_data_ptr<float>();
  args.beta = beta.const_data_ptr<float>();
  args.y = y.mutable_data_ptr();
  args.mean = mean.mutable_data_ptr<float>();
  args.rstd = rstd.mutable_data_ptr<float>();
  args.rows = rows;
  args.width = width;
  args.eps = static_cast<float>(eps);
  if (rows > 0) RequireCuda(cuda::NormForward(args, ElementOf(x.scalar_type()), StreamOf(x)), "a norm");
  return {y, mean, rstd};
}

std::tuple<Tensor, Tensor, Tensor> NormBackward(const Tensor& dy_given, const Tensor& given, const Tensor& by,
                                                const Tensor& mean, const Tensor& rstd) {
  const c10::cuda::CUDAGuard guard(given.device());
  const Tensor x = Aligned(given), dy = Aligned(dy_given.to(x.scalar_type())), gamma = Aligned(by);
  const Tensor dx = at::empty_like(x);
  const int64_t width = x.size(-1), rows = x.numel() / width;
  TORCH_CHECK(dy.sizes() == x.sizes() && gamma.numel() == width, "a norm's gradient of ", dy.sizes(), " for ",
              x.sizes());
  const Tensor dweights = at::empty({2, width}, gamma.options());
  const Tensor parts = at::empty({cuda::kNormParts, 2, width}, gamma.options());
  cuda::NormArgs args{};
  args.x = x.const_data_ptr();
  args.dy = dy.const_data_ptr();
  args.gamma = gamma.const_data_ptr<float>();
  args.dx = dx.mutable_data_ptr();
  args.mean = mean.mutable_data_ptr<float>();
  args.rstd = rstd.mutable_data_ptr<float>();
  args.parts = parts.mutable_data_ptr<float>();
  args.dweights = dweights.mutable_data_ptr<float>();
  args.rows = rows;
  args.width = width;
  if (rows == 0) {
    dweights.zero_();
  } else {
    RequireCuda(cuda::NormBackward(args, ElementOf(x.scalar_type()), StreamOf(x)), "a norm's gradient");
  }
  return {dx, dweights[0], dweights[1]};
}

Tensor SumColumns(const Tensor& given) {
  // Of what is over in microseconds one launch counts more than how long it runs.
  constexpr int64_t kSmall = 1 << 21;
  if (given.numel() < kSmall) return given.sum(0);
  const c10::cuda::CUDAGuard guard(given.device());
  const Tensor x = given.contiguous(), y = at::empty({x.size(1)}, x.options().dtype(at::kFloat));
  const Tensor parts = at::empty({cuda::kColumnParts, x.size(1)}, y.options());
  RequireCuda(cuda::SumColumns(x.const_data_ptr(), y.mutable_data_ptr<float>(), parts.mutable_data_ptr<float>(),
                               x.size(0), x.size(1), ElementOf(x.scalar_type()), StreamOf(x)),
              "sums over rows");
  return y.to(x.scalar_type());
}

cuda::LossArgs LossArgsOf(const Tensor& logits, const Tensor& targets, int64_t classes, int64_t ignored) {
  TORCH_CHECK(
      logits.is_contiguous() && targets.dim() == 1 && targets.size(0) == logits.size(0) && classes <= logits.size(1),
      "losses of ", classes, " classes from logits of ", logits.sizes(), " and targets of ", targets.sizes());
  cuda::LossArgs args{};
  args.logits = logits.mutable_data_ptr();
  args.targets = targets.const_data_ptr<int64_t>();
  args.rows = logits.size(0);
  args.classes = classes;
  args.stride = logits.size(1);
  args.ignored = ignored;
  return args;
}

std::tuple<Tensor, Tensor> Loss(const Tensor& logits, const Tensor& given, int64_t classes, int64_t ignored) {
  const c10::cuda::CUDAGuard guard(logits.device());
  const Tensor targets = given.contiguous();
  const auto floats = logits.options().dtype(at::kFloat);
  const Tensor losses = at::empty({logits.size(0)}, floats), lse = at::empty({logits.size(0)}, floats);
  cuda::LossArgs args = LossArgsOf(logits, targets, classes, ignored);
  args.losses = losses.mutable_data_ptr<float>();
  args.lse = lse.mutable_data_ptr<float>();
  RequireCuda(cuda::LossForward(args, ElementOf(logits.scalar_type()), StreamOf(logits)), "a loss");
  return {losses, lse};
}

void LossGradient(const Tensor& grad, Tensor& logits, const Tensor& given, const Tensor& lse, int64_t classes,
                  int64_t ignored) {
  const c10::cuda::CUDAGuard guard(logits.device());
  const Tensor targets = given.contiguous(), scale = grad.to(at::kFloat);
  cuda::LossArgs args = LossArgsOf(logits, targets, classes, ignored);
  args.lse = lse.mutable_data_ptr<float>();
  args.grad = scale.const_data_ptr<float>();
  RequireCuda(cuda::LossGradient(args, ElementOf(logits.scalar_type()), StreamOf(logits)), "a loss's gradient");
}

}  // namespace

void RegisterCudaOps() {
  static const auto library = [] {
    torch::Library ops(torch::Library::IMPL, "trainyard", c10::DispatchKey::CUDA, __FILE__, __LINE__);
    ops.impl("norm", &Norm);
    ops.impl("norm_backward", &NormBackward);
    ops.impl("sum_columns", &SumColumns);
    ops.impl("loss", &Loss);
    ops.impl("loss_gradient", &LossGradient);
    return ops;
  }();
}

}  // namespace trainyard
