#include "trainer/model/batch_moments.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "trainer/model/planes.h"
#include "trainer/model/with_kernels.h"

namespace trainyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// A gradient that nobody else has, as it comes out of the operation that made it.
bool IsOurs(const at::Tensor& gradient) {
  return gradient.use_count() == 1 && gradient.storage().use_count() == 1 && gradient.is_contiguous();
}

// Its outputs are x and the moments. Not a Function: that keeps the gradients that it was given until backward has
// returned, and none would be ours.
struct MomentsBackward : torch::autograd::Node {
  MomentsBackward(const at::Tensor& values, at::Tensor of_values) : x(values, false), moments(std::move(of_values)) {}

  std::string name() const override { return "SampleMoments"; }

  void release_variables() override {
    const std::lock_guard lock(mutex_);
    x.reset_data();
    moments.reset();
  }

  variable_list apply(variable_list&& gradients) override {
    const std::lock_guard lock(mutex_);
    at::Tensor dx = std::move(gradients[0]);
    if (!gradients[1].defined()) return {dx};
    const at::Tensor values = x.unpack(), dm = gradients[1].contiguous();
    if (!dx.defined()) dx = at::zeros_like(values);
    if (!IsOurs(dx)) dx = dx.clone(at::MemoryFormat::Contiguous);
    const Planes planes(values);
    const int64_t places = planes.places, C = planes.channels;
    const auto n = static_cast<float>(places);
    const float *of = moments.data_ptr<float>(), *d = dm.data_ptr<float>();
    WithKernels(values.scalar_type(), [&]<class T>(const kernels::Typed<T>& with) {
      const T* in = Data<T>(values);
      T* out = Data<T>(dx);
      planes.ForEach([&](int64_t i) {
        const int64_t row = i / C * 2 * C + i % C;
        with.plane_moments_backward(in + i * places, places, of[row], d[row] / n, 2 * d[row + C] / n, out + i * places);
      });
    });
    return {dx};
  }

  SavedVariable x;
  at::Tensor moments;
};

struct Together : Function<Together> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& given) {
    const at::Tensor rows = given.contiguous();
    const int64_t R = rows.size(0), columns = rows.size(1), C = (columns - 1) / 2;
    const float* in = rows.data_ptr<float>();
    at::Tensor moments = at::zeros({2, C}, at::kFloat);
    double weight = 0;
    for (int64_t r = 0; r < R; ++r) weight += static_cast<double>(in[r * columns]);
    for (int64_t c = 0; c < C && weight > 0; ++c) {
      double mean = 0, variance = 0;
      for (int64_t r = 0; r < R; ++r)
        mean += static_cast<double>(in[r * columns]) * static_cast<double>(in[r * columns + 1 + c]);
      mean /= weight;
      for (int64_t r = 0; r < R; ++r) {
        const double apart = static_cast<double>(in[r * columns + 1 + c]) - mean;
        variance +=
            static_cast<double>(in[r * columns]) * (static_cast<double>(in[r * columns + 1 + C + c]) + apart * apart);
      }
      moments[0].data_ptr<float>()[c] = static_cast<float>(mean);
      moments[1].data_ptr<float>()[c] = static_cast<float>(variance / weight);
    }
    ctx->save_for_backward({rows, moments});
    ctx->saved_data["weight"] = weight;
    return moments;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &rows = saved[0], &moments = saved[1], dm = grads[0].contiguous();
    const double weight = ctx->saved_data["weight"].toDouble();
    const int64_t R = rows.size(0), columns = rows.size(1), C = (columns - 1) / 2;
    at::Tensor dr = at::zeros({R, columns}, at::kFloat);
    const float *in = rows.data_ptr<float>(), *of = moments.data_ptr<float>(), *d = dm.data_ptr<float>();
    float* out = dr.data_ptr<float>();
    for (int64_t r = 0; r < R && weight > 0; ++r) {
      const auto share = static_cast<float>(static_cast<double>(in[r * columns]) / weight);
      for (int64_t c = 0; c < C; ++c) {
        out[r * columns + 1 + c] = share * (d[c] + 2 * d[C + c] * (in[r * columns + 1 + c] - of[c]));
        out[r * columns + 1 + C + c] = share * d[C + c];
      }
    }
    return {dr};
  }
};

}  // namespace

WithMoments SampleMoments(const at::Tensor& x) {
  const Planes planes(x);
  const int64_t C = planes.channels;
  at::Tensor moments = at::empty({planes.samples, 2 * C}, at::kFloat);
  float* out = moments.data_ptr<float>();
  WithKernels(x.scalar_type(), [&]<class T>(const kernels::Typed<T>& with) {
    const T* in = Data<T>(x);
    planes.ForEach([&](int64_t i) {
      float* mean = out + i / C * 2 * C + i % C;
      with.plane_moments(in + i * planes.places, planes.places, mean, mean + C);
    });
  });
  WithMoments result{x, moments};
  if (!torch::autograd::compute_requires_grad(x)) return result;
  const std::shared_ptr<MomentsBackward> node(new MomentsBackward(x, moments.detach()), torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(x));
  result.x = x.detach();
  torch::autograd::create_gradient_edge(result.x, node);
  torch::autograd::create_gradient_edge(result.moments, node);
  return result;
}

at::Tensor MomentsTogether(const at::Tensor& rows) { return Together::apply(rows); }

}  // namespace trainyard
