#include "trainer/model/max_pool.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/max_pool3d.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "trainer/kernels/kernels.h"
#include "trainer/model/parallel_for.h"

namespace trainyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

int64_t Half(int64_t size) { return (size + 1) / 2; }

// The places of an axis that the window `at` covers: [begin, end).
struct Window {
  Window(int64_t at, int64_t size) : begin(std::max<int64_t>(2 * at - 1, 0)), end(std::min(2 * at + 2, size)) {}
  int64_t begin, end;
};

// Values and their places.
struct Largest {
  std::vector<float> value;
  std::vector<int32_t> place;

  explicit Largest(int64_t size) : value(static_cast<size_t>(size)), place(static_cast<size_t>(size)) {}
};

// One channel of one sample: the largest along depth, then of those along height, then along width. At the end a value
// has been compared three times for each axis, not 27 times.
class ChannelPool {
 public:
  explicit ChannelPool(at::IntArrayRef sizes)
      : D_(sizes[0]), H_(sizes[1]), W_(sizes[2]), plane_(H_ * W_), next_(H_ * W_), row_(W_) {
    std::iota(next_.place.begin(), next_.place.end(), 0);
  }

  template <class T>
  void Run(const T* x, T* y, int32_t* places) {
    const auto take = kernels::Kernels().take_larger;
    for (int64_t d = 0; d < Half(D_); ++d) {
      const Window depth(d, D_);
      std::ranges::fill(plane_.value, -std::numeric_limits<float>::infinity());
      std::ranges::fill(plane_.place, std::numeric_limits<int32_t>::max());
      for (int64_t z = depth.begin; z < depth.end; ++z) {
        std::copy_n(x + z * H_ * W_, H_ * W_, next_.value.begin());
        take(plane_.value.data(), plane_.place.data(), next_.value.data(), next_.place.data(),
             static_cast<int32_t>(z * H_ * W_), H_ * W_);
      }
      for (int64_t h = 0; h < Half(H_); ++h) {
        const Window height(h, H_);
        std::copy_n(plane_.value.begin() + height.begin * W_, W_, row_.value.begin());
        std::copy_n(plane_.place.begin() + height.begin * W_, W_, row_.place.begin());
        for (int64_t line = height.begin + 1; line < height.end; ++line)
          take(row_.value.data(), row_.place.data(), plane_.value.data() + line * W_, plane_.place.data() + line * W_,
               0, W_);
        PoolRow(y, places);
        y += Half(W_);
        places += Half(W_);
      }
    }
  }

 private:
  template <class T>
  void PoolRow(T* y, int32_t* places) const {
    for (int64_t w = 0; w < Half(W_); ++w) {
      const Window width(w, W_);
      auto best = static_cast<size_t>(width.begin);
      for (size_t i = best + 1; i < static_cast<size_t>(width.end); ++i) {
        const float value = row_.value[i], most = row_.value[best];
        if (value > most || std::isnan(value) || (value == most && row_.place[i] < row_.place[best])) best = i;
      }
      y[w] = static_cast<T>(row_.value[best]);
      places[w] = row_.place[best];
    }
  }

  const int64_t D_, H_, W_;
  Largest plane_, next_, row_;
};

// Values are compared as float32.
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
    const int64_t channels = x.size(0) * x.size(1), from = sizes[0] * sizes[1] * sizes[2],
                  to = Half(sizes[0]) * Half(sizes[1]) * Half(sizes[2]);
    at::Tensor y = at::empty({x.size(0), x.size(1), Half(sizes[0]), Half(sizes[1]), Half(sizes[2])}, x.options());
    const at::Tensor places = at::empty(y.sizes(), x.options().dtype(at::kInt));
    OfType(x.scalar_type(), [&]<class T>() {
      const auto* in = x.const_data_ptr<T>();
      auto* out = y.data_ptr<T>();
      auto* place = places.data_ptr<int32_t>();
      ParallelFor(0, channels, 1, [&](int64_t begin, int64_t end) {
        ChannelPool pool(sizes);
        for (int64_t c = begin; c < end; ++c) pool.Run(in + c * from, out + c * to, place + c * to);
      });
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
