#include "trainer/model/global_batch_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "trainer/model/device_ops.h"
#include "trainer/model/parallel_for.h"

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

// The sum of term(i) over [0, n): in so many lanes over blocks, blocks in float64. The order is this file's, whatever
// the machine's vectors are.
template <class Term>
double Sum(int64_t n, Term term) {
  constexpr int64_t kLanes = 16, kBlock = 1024;
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = std::min(n, begin + kBlock), whole = begin + (end - begin) / kLanes * kLanes;
    std::array<float, kLanes> lanes{};
    for (int64_t i = begin; i < whole; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) lanes[static_cast<size_t>(lane)] += term(i + lane);
    }
    for (int64_t i = whole; i < end; ++i) lanes[static_cast<size_t>(i - whole)] += term(i);
    for (const float lane : lanes) total += static_cast<double>(lane);
  }
  return total;
}

// x: (B, C, ...) -> (B, 2 C): each channel's mean over its places, then its biased variance.
struct SampleMoments : Function<SampleMoments> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x) {
    const Planes planes(x);
    at::Tensor moments = at::empty({planes.samples, 2 * planes.channels}, at::kFloat);
    float* out = moments.data_ptr<float>();
    const float* in = x.data_ptr<float>();
    planes.ForEach([&](int64_t sample, int64_t channel, int64_t offset) {
      const float* plane = in + offset;
      const auto n = static_cast<double>(planes.places);
      const auto mean = static_cast<float>(Sum(planes.places, [&](int64_t i) { return plane[i]; }) / n);
      float* row = out + sample * 2 * planes.channels + channel;
      row[0] = mean;
      row[planes.channels] =
          static_cast<float>(Sum(planes.places, [&](int64_t i) { return (plane[i] - mean) * (plane[i] - mean); }) / n);
    });
    ctx->save_for_backward({x, moments});
    return moments;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &moments = saved[1], dm = grads[0].contiguous();
    const Planes planes(x);
    at::Tensor dx = at::empty_like(x);
    const float *in = x.data_ptr<float>(), *of = moments.data_ptr<float>(), *d = dm.data_ptr<float>();
    float* out = dx.data_ptr<float>();
    planes.ForEach([&](int64_t sample, int64_t channel, int64_t offset) {
      const int64_t row = sample * 2 * planes.channels + channel;
      const auto n = static_cast<float>(planes.places);
      const float mean = of[row], to_mean = d[row] / n, to_variance = 2 * d[row + planes.channels] / n;
      for (int64_t i = offset; i < offset + planes.places; ++i) out[i] = to_mean + to_variance * (in[i] - mean);
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

// (x - mean) / sqrt(variance + eps) weight + bias. x: (B, C, ...), moments: (2, C), weight, bias: (C); all float32.
struct Normalise : Function<Normalise> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& moments,
                            const at::Tensor& weight, const at::Tensor& bias, double eps) {
    const Planes planes(x);
    const at::Tensor scale = at::empty({planes.channels}, at::kFloat);  // 1 / deviation
    at::Tensor y = at::empty_like(x);
    const float *in = x.data_ptr<float>(), *of = moments.data_ptr<float>(), *w = weight.data_ptr<float>(),
                *b = bias.data_ptr<float>();
    float *out = y.data_ptr<float>(), *s = scale.data_ptr<float>();
    for (int64_t c = 0; c < planes.channels; ++c)
      s[c] = static_cast<float>(1 / std::sqrt(static_cast<double>(of[planes.channels + c]) + eps));
    planes.ForEach([&](int64_t, int64_t c, int64_t offset) {
      const float mean = of[c], slope = s[c] * w[c], shift = b[c];
      for (int64_t i = offset; i < offset + planes.places; ++i) out[i] = (in[i] - mean) * slope + shift;
    });
    ctx->save_for_backward({x, moments, weight, scale});
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &moments = saved[1], &weight = saved[2], &scale = saved[3],
                     dy = grads[0].contiguous();
    const Planes planes(x);
    const int64_t C = planes.channels;
    at::Tensor dx = at::empty_like(x), sums = at::empty({2, planes.samples, C}, at::kDouble);
    const float *in = x.data_ptr<float>(), *of = moments.data_ptr<float>(), *w = weight.data_ptr<float>(),
                *s = scale.data_ptr<float>(), *d = dy.data_ptr<float>();
    float* out = dx.data_ptr<float>();
    double* sum = sums.data_ptr<double>();
    planes.ForEach([&](int64_t sample, int64_t c, int64_t offset) {
      const float mean = of[c], slope = s[c] * w[c];
      const float *plane = in + offset, *to = d + offset;
      sum[sample * C + c] = Sum(planes.places, [&](int64_t i) { return to[i]; });
      sum[(planes.samples + sample) * C + c] = Sum(planes.places, [&](int64_t i) { return to[i] * (plane[i] - mean); });
      for (int64_t i = 0; i < planes.places; ++i) out[offset + i] = to[i] * slope;
    });
    at::Tensor dm = at::empty({2, C}, at::kFloat), dw = at::empty({C}, at::kFloat), db = at::empty({C}, at::kFloat);
    for (int64_t c = 0; c < C; ++c) {
      double plain = 0, apart = 0;  // sums of dy, and of dy (x - mean)
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
    return {dx, dm, dw, db, {}};
  }
};

at::Tensor MomentsOfSamples(const at::Tensor& x) {
  return x.is_cpu() ? SampleMoments::apply(x) : device_ops::SampleMoments(x);
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
  const at::Tensor wide = x.to(at::kFloat).contiguous();
  const at::Tensor rows = pass.Gather(gather, at::cat({batch.present.unsqueeze(1), MomentsOfSamples(wide)}, 1));
  at::Tensor moments = rows.is_cpu() ? Together::apply(rows) : device_ops::MomentsTogether(rows);
  const at::NoGradGuard no_graph;
  // Where the rows are: no forward waits for a device.
  const at::Tensor values = rows.select(1, 0).sum().to(at::kDouble) * static_cast<double>(Planes(wide).places);
  const at::Tensor unbiased = at::where(values > 1, values / (values - 1), 1.0);
  pass.Stage(mean, pass[mean] * (1 - momentum) + moments[0] * momentum);
  pass.Stage(variance, pass[variance] * (1 - momentum) + moments[1] * (unbiased * momentum));
  pass.Stage(batches, pass[batches] + 1);
  return moments;
}

at::Tensor GlobalBatchNorm::operator()(const Pass& pass, const at::Tensor& x, const at::Tensor& moments) const {
  const at::Tensor wide = x.to(at::kFloat).contiguous();
  const at::Tensor normal = wide.is_cpu() ? Normalise::apply(wide, moments, pass[weight], pass[bias], eps)
                                          : device_ops::Normalise(wide, moments, pass[weight], pass[bias], eps);
  return normal.to(x.scalar_type());
}

}  // namespace trainyard
