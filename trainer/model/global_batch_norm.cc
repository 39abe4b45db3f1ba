#include "trainer/model/global_batch_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "trainer/model/device_ops.h"
#include "trainer/model/with_kernels.h"
#include "trainer/threads/parallel_for.h"

namespace trainyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// A plane: the places of one channel of one sample, side by side.
struct Planes {
  explicit Planes(const at::Tensor& x)
      : samples(x.size(0)), channels(x.size(1)), places(x.numel() / std::max<int64_t>(1, samples * channels)) {}
  // run(sample, channel, offset of the plane), each by one thread.
  void ForEach(const std::function<void(int64_t, int64_t, int64_t)>& run) const {
    ParallelFor(0, samples * channels, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) run(i / channels, i % channels, i * places);
    });
  }
  int64_t samples, channels, places;
};

// x: (B, C, ...) -> (B, 2 C) float32: each channel's mean over its places, then its biased variance.
struct SampleMoments : Function<SampleMoments> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x) {
    const Planes planes(x);
    at::Tensor moments = at::empty({planes.samples, 2 * planes.channels}, at::kFloat);
    float* out = moments.data_ptr<float>();
    WithKernels(x.scalar_type(), [&]<class T>(const kernels::Typed<T>& with) {
      const T* in = Data<T>(x);
      planes.ForEach([&](int64_t sample, int64_t channel, int64_t offset) {
        float* row = out + sample * 2 * planes.channels + channel;
        with.plane_moments(in + offset, planes.places, row, row + planes.channels);
      });
    });
    ctx->save_for_backward({x, moments});
    return moments;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &moments = saved[1], dm = grads[0].contiguous();
    const Planes planes(x);
    at::Tensor dx = at::empty_like(x);
    const float *of = moments.data_ptr<float>(), *d = dm.data_ptr<float>();
    WithKernels(x.scalar_type(), [&]<class T>(const kernels::Typed<T>& with) {
      const T* in = Data<T>(x);
      T* out = Data<T>(dx);
      planes.ForEach([&](int64_t sample, int64_t channel, int64_t offset) {
        const int64_t row = sample * 2 * planes.channels + channel;
        const auto n = static_cast<float>(planes.places);
        with.plane_moments_backward(in + offset, planes.places, of[row], d[row] / n, 2 * d[row + planes.channels] / n,
                                    out + offset);
      });
    });
    return {dx};
  }
};

// rows: (R, 1 + 2 C), a sample's weight and moments -> (2, C): those of all samples together.
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

// (x - mean) / sqrt(variance + eps) weight + bias, with `relu` at least 0. x: (B, C, ...), moments: (2, C), weight,
// bias: (C), float32 -> x's shape and type
struct Normalise : Function<Normalise> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& moments,
                            const at::Tensor& weight, const at::Tensor& bias, double eps, bool relu) {
    const at::Tensor scale = (moments[1].to(at::kDouble) + eps).rsqrt().to(at::kFloat);  // 1 / deviation
    const auto norms = NormsOf(moments, weight, bias, scale, relu);
    at::Tensor y = at::empty_like(x);
    const Planes planes(x);
    WithKernels(x.scalar_type(), [&]<class T>(const kernels::Typed<T>& with) {
      const T* in = Data<T>(x);
      T* out = Data<T>(y);
      planes.ForEach([&](int64_t, int64_t c, int64_t offset) {
        with.plane_norm_forward(norms[static_cast<size_t>(c)], in + offset, planes.places, out + offset);
      });
    });
    ctx->save_for_backward({x, moments, weight, bias, scale});
    ctx->saved_data["relu"] = relu;
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[2], &scale = saved[4], dy = grads[0].contiguous();
    const auto norms = NormsOf(saved[1], weight, saved[3], scale, ctx->saved_data["relu"].toBool());
    const Planes planes(x);
    const int64_t C = planes.channels;
    at::Tensor dx = at::empty_like(x), sums = at::empty({2, planes.samples, C}, at::kDouble);
    double* sum = sums.data_ptr<double>();
    WithKernels(x.scalar_type(), [&]<class T>(const kernels::Typed<T>& with) {
      const T *in = Data<T>(x), *d = Data<T>(dy);
      T* out = Data<T>(dx);
      planes.ForEach([&](int64_t sample, int64_t c, int64_t offset) {
        double* of = sum + sample * C + c;
        with.plane_norm_backward(norms[static_cast<size_t>(c)], in + offset, d + offset, planes.places, out + offset,
                                 of, of + planes.samples * C);
      });
    });
    at::Tensor dm = at::empty({2, C}, at::kFloat), dw = at::empty({C}, at::kFloat), db = at::empty({C}, at::kFloat);
    const float *s = scale.data_ptr<float>(), *w = weight.data_ptr<float>();
    for (int64_t c = 0; c < C; ++c) {
      double plain = 0, apart = 0;  // sums of what comes through of dy, and of that times (x - mean)
      for (int64_t sample = 0; sample < planes.samples; ++sample) {
        plain += sum[sample * C + c];
        apart += sum[(planes.samples + sample) * C + c];
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
  // Of each channel.
  static std::vector<kernels::PlaneNorm> NormsOf(const at::Tensor& moments, const at::Tensor& weight,
                                                 const at::Tensor& bias, const at::Tensor& scale, bool relu) {
    const float *mean = moments.data_ptr<float>(), *w = weight.data_ptr<float>(), *b = bias.data_ptr<float>(),
                *s = scale.data_ptr<float>();
    std::vector<kernels::PlaneNorm> norms;
    for (int64_t c = 0; c < weight.size(0); ++c) norms.push_back({mean[c], s[c] * w[c], b[c], relu});
    return norms;
  }
};

at::Tensor MomentsOfSamples(const at::Tensor& x) {
  return x.is_cpu() ? SampleMoments::apply(x.contiguous()) : device_ops::SampleMoments(x.to(at::kFloat).contiguous());
}

}  // namespace

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

at::Tensor GlobalBatchNorm::Moments(const Pass& pass, const at::Tensor& x, GlobalBatch& batch) const {
  if (!pass.training() || !x.requires_grad()) {
    if (pass.training()) TakePartInGather(pass, gather, 2 * channels + 1, batch);
    return at::stack({pass[mean], pass[variance]});
  }
  const at::Tensor rows = pass.Gather(gather, at::cat({batch.present.unsqueeze(1), MomentsOfSamples(x)}, 1));
  at::Tensor moments = rows.is_cpu() ? Together::apply(rows) : device_ops::MomentsTogether(rows);
  const at::NoGradGuard no_graph;
  // Where the rows are: no forward waits for a device.
  const at::Tensor values = rows.select(1, 0).sum().to(at::kDouble) * static_cast<double>(Planes(x).places);
  const at::Tensor unbiased = at::where(values > 1, values / (values - 1), 1.0);
  pass.Stage(mean, pass[mean] * (1 - momentum) + moments[0] * momentum);
  pass.Stage(variance, pass[variance] * (1 - momentum) + moments[1] * (unbiased * momentum));
  pass.Stage(batches, pass[batches] + 1);
  return moments;
}

at::Tensor GlobalBatchNorm::operator()(const Pass& pass, const at::Tensor& x, const at::Tensor& moments,
                                       Then then) const {
  const bool relu = then == Then::kRelu;
  if (x.is_cpu()) return Normalise::apply(x.contiguous(), moments, pass[weight], pass[bias], eps, relu);
  const at::Tensor wide = x.to(at::kFloat).contiguous();
  const at::Tensor normal = device_ops::Normalise(wide, moments, pass[weight], pass[bias], eps).to(x.scalar_type());
  return relu ? at::relu(normal) : normal;
}

}  // namespace trainyard
