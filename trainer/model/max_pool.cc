#include "trainer/model/max_pool.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/max_pool3d.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <stdexcept>

#include "trainer/model/with_kernels.h"
#include "trainer/threads/parallel_for.h"

namespace trainyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

int64_t Half(int64_t size) { return (size + 1) / 2; }

template <class Run>
void OfType(at::ScalarType type, Run run) {
  if (type == at::kFloat) return run.template operator()<float>();
  if (type == at::kBFloat16) return run.template operator()<at::BFloat16>();
  if (type == at::kHalf) return run.template operator()<at::Half>();
  throw std::logic_error("MaxPool3d of another type than float32, bfloat16 and float16");
}

struct MaxPoolFunction : Function<MaxPoolFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& given) {
    const at::Tensor x = given.contiguous();
    const at::IntArrayRef sizes = x.sizes().slice(2);
    const int64_t channels = x.size(0) * x.size(1);
    at::Tensor y = at::empty({x.size(0), x.size(1), Half(sizes[0]), Half(sizes[1]), Half(sizes[2])}, x.options());
    const at::Tensor places = at::empty(y.sizes(), x.options().dtype(at::kInt));
    WithKernels(x.scalar_type(), [&]<class T>(const kernels::Typed<T>& with) {
      const kernels::MaxPoolArgs<T> args{.size = {sizes[0], sizes[1], sizes[2]},
                                         .x = Data<T>(x),
                                         .y = Data<T>(y),
                                         .places = places.data_ptr<int32_t>()};
      ParallelFor(0, channels, 1, [&](int64_t begin, int64_t end) { with.max_pool(args, begin, end); });
    });
    ctx->save_for_backward({places});
    ctx->saved_data["sizes"] = x.sizes().vec();
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor places = ctx->get_saved_variables()[0], dy = grads[0].contiguous();
    const at::Tensor dx = at::zeros(ctx->saved_data["sizes"].toIntVector(), dy.options());
    const int64_t channels = dx.size(0) * dx.size(1), to = dx.size(2) * dx.size(3) * dx.size(4),
                  from = dy.size(2) * dy.size(3) * dy.size(4);
    OfType(dy.scalar_type(), [&]<class T>() {
      const auto* in = dy.const_data_ptr<T>();
      auto* out = dx.data_ptr<T>();
      const auto* place = places.const_data_ptr<int32_t>();
      ParallelFor(0, channels, 1, [&](int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; ++c) {
          for (int64_t i = c * from; i < (c + 1) * from; ++i) out[c * to + place[i]] += in[i];
        }
      });
    });
    return {dx};
  }
};

}  // namespace

at::Tensor MaxPool3d(const at::Tensor& x) {
  return x.is_cpu() ? MaxPoolFunction::apply(x) : at::max_pool3d(x, {3, 3, 3}, {2, 2, 2}, {1, 1, 1});
}

}  // namespace trainyard
