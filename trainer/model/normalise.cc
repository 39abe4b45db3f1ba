#include "trainer/model/normalise.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "trainer/model/planes.h"
#include "trainer/model/with_kernels.h"

namespace trainyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Of each channel.
std::vector<kernels::PlaneNorm> NormsOf(const at::Tensor& moments, const at::Tensor& weight, const at::Tensor& bias,
                                        const at::Tensor& scale, bool relu) {
  const float *mean = moments.data_ptr<float>(), *w = weight.data_ptr<float>(), *b = bias.data_ptr<float>(),
              *s = scale.data_ptr<float>();
  std::vector<kernels::PlaneNorm> norms;
  for (int64_t c = 0; c < weight.size(0); ++c) norms.push_back({mean[c], s[c] * w[c], b[c], relu});
  return norms;
}

int64_t Half(int64_t size) { return (size + 1) / 2; }

std::vector<int64_t> PooledSizes(const at::Tensor& x) {
  return {x.size(0), x.size(1), Half(x.size(2)), Half(x.size(3)), Half(x.size(4))};
}

// What a thread works with: a plane's values between norm and pooling, or their gradients.
template <class T>
std::unique_ptr<T[]> PlaneOf(const Planes& planes) {
  return std::make_unique_for_overwrite<T[]>(static_cast<size_t>(planes.places));
}

struct Normalise : Function<Normalise> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& moments,
                            const at::Tensor& weight, const at::Tensor& bias, double eps, AfterNorm after) {
    const at::Tensor scale = (moments[1].to(at::kDouble) + eps).rsqrt().to(at::kFloat);  // 1 / deviation
    const auto norms = NormsOf(moments, weight, bias, scale, after != AfterNorm::kNothing);
    const bool pools = after == AfterNorm::kReluMaxPool;
    at::Tensor y = pools ? at::empty(PooledSizes(x), x.options()) : at::empty_like(x);
    const at::Tensor places = pools ? at::empty(y.sizes(), x.options().dtype(at::kInt)) : at::Tensor();
    WithKernels(x.scalar_type(), [&]<class T>(const kernels::Typed<T>& with) {
      pools ? Pool(with, norms, x, y, places) : Plain(with, norms, x, y);
    });
    ctx->save_for_backward({x, moments, weight, bias, scale, places});
    ctx->saved_data["relu"] = after != AfterNorm::kNothing;
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[2], &scale = saved[4], &places = saved[5];
    const at::Tensor dy = grads[0].contiguous();
    const auto norms = NormsOf(saved[1], weight, saved[3], scale, ctx->saved_data["relu"].toBool());
    const int64_t B = x.size(0), C = x.size(1);
    at::Tensor dx = at::empty_like(x), sums = at::empty({2, B, C}, at::kDouble);
    WithKernels(x.scalar_type(), [&]<class T>(const kernels::Typed<T>& with) {
      places.defined() ? PoolBackward(with, norms, x, dy, places, dx, sums)
                       : PlainBackward(with, norms, x, dy, dx, sums);
    });
    const double* sum = sums.data_ptr<double>();
    at::Tensor dm = at::empty({2, C}, at::kFloat), dw = at::empty({C}, at::kFloat), db = at::empty({C}, at::kFloat);
    const float *s = scale.data_ptr<float>(), *w = weight.data_ptr<float>();
    for (int64_t c = 0; c < C; ++c) {
      double plain = 0, apart = 0;  // sums of what comes through of dy, and of that times (x - mean)
      for (int64_t sample = 0; sample < B; ++sample) {
        plain += sum[sample * C + c];
        apart += sum[(B + sample) * C + c];
      }
      const double rate = static_cast<double>(s[c]), slope = rate * static_cast<double>(w[c]);
      db.data_ptr<float>()[c] = static_cast<float>(plain);
      dw.data_ptr<float>()[c] = static_cast<float>(apart * rate);
      dm.data_ptr<float>()[c] = static_cast<float>(-plain * slope);
      dm.data_ptr<float>()[C + c] = static_cast<float>(-0.5 * apart * slope * rate * rate);
    }
    return {dx, dm, dw, db, {}, {}};
  }

 private:
  using Norms = std::vector<kernels::PlaneNorm>;

  template <class T>
  static void Plain(const kernels::Typed<T>& with, const Norms& norms, const at::Tensor& x, const at::Tensor& y) {
    const Planes planes(x);
    const int64_t n = planes.places;
    const T* in = Data<T>(x);
    T* out = Data<T>(y);
    planes.ForEach([&](int64_t i) {
      with.plane_norm_forward(norms[static_cast<size_t>(i % planes.channels)], in + i * n, n, out + i * n);
    });
  }

  template <class T>
  static void PlainBackward(const kernels::Typed<T>& with, const Norms& norms, const at::Tensor& x,
                            const at::Tensor& dy, const at::Tensor& dx, const at::Tensor& sums) {
    const Planes planes(x);
    const int64_t n = planes.places;
    const T *in = Data<T>(x), *d = Data<T>(dy);
    T* out = Data<T>(dx);
    double *sum = sums.data_ptr<double>(), *apart = sum + planes.samples * planes.channels;
    planes.ForEach([&](int64_t i) {
      with.plane_norm_backward(norms[static_cast<size_t>(i % planes.channels)], in + i * n, d + i * n, n, out + i * n,
                               sum + i, apart + i);
    });
  }

  template <class T>
  static void Pool(const kernels::Typed<T>& with, const Norms& norms, const at::Tensor& x, const at::Tensor& y,
                   const at::Tensor& places) {
    const Planes planes(x);
    const int64_t n = planes.places, pooled = Planes(y).places;
    const T* in = Data<T>(x);
    T* out = Data<T>(y);
    int32_t* place = places.data_ptr<int32_t>();
    planes.ForEachWith([&] { return PlaneOf<T>(planes); },
                       [&](int64_t i, const std::unique_ptr<T[]>& normal) {
                         with.plane_norm_forward(norms[static_cast<size_t>(i % planes.channels)], in + i * n, n,
                                                 normal.get());
                         with.max_pool({.size = {x.size(2), x.size(3), x.size(4)},
                                        .x = normal.get(),
                                        .y = out + i * pooled,
                                        .places = place + i * pooled},
                                       0, 1);
                       });
  }

  template <class T>
  static void PoolBackward(const kernels::Typed<T>& with, const Norms& norms, const at::Tensor& x, const at::Tensor& dy,
                           const at::Tensor& places, const at::Tensor& dx, const at::Tensor& sums) {
    const Planes planes(x);
    const int64_t n = planes.places, pooled = Planes(dy).places;
    const T *in = Data<T>(x), *d = Data<T>(dy);
    T* out = Data<T>(dx);
    const int32_t* place = places.data_ptr<int32_t>();
    double *sum = sums.data_ptr<double>(), *apart = sum + planes.samples * planes.channels;
    planes.ForEachWith([&] { return PlaneOf<T>(planes); },
                       [&](int64_t i, const std::unique_ptr<T[]>& of_normal) {
                         std::fill_n(of_normal.get(), n, T{});
                         with.max_pool_backward(d + i * pooled, place + i * pooled, pooled, of_normal.get());
                         with.plane_norm_backward(norms[static_cast<size_t>(i % planes.channels)], in + i * n,
                                                  of_normal.get(), n, out + i * n, sum + i, apart + i);
                       });
  }
};

}  // namespace

at::Tensor Normalised(const at::Tensor& x, const at::Tensor& moments, const at::Tensor& weight, const at::Tensor& bias,
                      double eps, AfterNorm after) {
  return Normalise::apply(x, moments, weight, bias, eps, after);
}

}  // namespace trainyard
