// Legend: N samples, I inputs, O outputs of a layer; weights are (O, I) row-major.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "trainer/base/random.h"
#include "trainer/task/algorithm_distillation/sources.h"

namespace trainyard::ad {
namespace {

constexpr int kHidden = 64;
constexpr int kInputs = 2;
constexpr float kGamma = 0.99f, kLambda = 0.95f, kClip = 0.2f, kValueWeight = 0.5f, kMaxNorm = 0.5f;
constexpr float kRate = 3e-4f, kAdamEps = 1e-5f;
constexpr int kMinibatch = 40, kEpochs = 20;

// One fully connected layer with its gradient and Adam's moments.
struct Layer {
  int inputs, outputs;
  std::vector<float> value, gradient, m, v;  // (O, I) then (O)

  Layer(int in, int out, float gain, KeyedRandom& random) : inputs(in), outputs(out) {
    const auto n = static_cast<size_t>(out * in + out);
    value.assign(n, 0);
    gradient.assign(n, 0);
    m.assign(n, 0);
    v.assign(n, 0);
    Orthogonal(gain, random);
  }

  // Rows (or columns, the fewer) orthonormal, times gain: Gram-Schmidt on normal draws.
  void Orthogonal(float gain, KeyedRandom& random) {
    const int rows = std::min(inputs, outputs), width = std::max(inputs, outputs);
    std::vector<std::vector<double>> basis;
    while (static_cast<int>(basis.size()) < rows) {
      std::vector<double> vec(static_cast<size_t>(width));
      for (double& x : vec) x = random.Normal();
      for (const auto& other : basis) {
        const double dot = std::inner_product(vec.begin(), vec.end(), other.begin(), 0.0);
        for (size_t i = 0; i < vec.size(); ++i) vec[i] -= dot * other[i];
      }
      const double norm = std::sqrt(std::inner_product(vec.begin(), vec.end(), vec.begin(), 0.0));
      for (double& x : vec) x /= norm;
      basis.push_back(std::move(vec));
    }
    for (int o = 0; o < outputs; ++o) {
      for (int i = 0; i < inputs; ++i) {
        const double x = outputs <= inputs ? basis[static_cast<size_t>(o)][static_cast<size_t>(i)]
                                           : basis[static_cast<size_t>(i)][static_cast<size_t>(o)];
        value[static_cast<size_t>(o * inputs + i)] = gain * static_cast<float>(x);
      }
    }
  }

  void Forward(const float* x, float* y) const {
    const float* bias = value.data() + outputs * inputs;
    for (int o = 0; o < outputs; ++o) {
      const float* w = value.data() + o * inputs;
      float sum = bias[o];
#pragma omp simd reduction(+ : sum)
      for (int i = 0; i < inputs; ++i) sum += w[i] * x[i];
      y[o] = sum;
    }
  }

  // Adds to the gradient; dx may be null.
  void Backward(const float* x, const float* dy, float* dx) {
    if (dx) std::fill(dx, dx + inputs, 0.f);
    for (int o = 0; o < outputs; ++o) {
      float* dw = gradient.data() + o * inputs;
      const float* w = value.data() + o * inputs;
#pragma omp simd
      for (int i = 0; i < inputs; ++i) dw[i] += dy[o] * x[i];
      if (dx) {
#pragma omp simd
        for (int i = 0; i < inputs; ++i) dx[i] += dy[o] * w[i];
      }
      gradient[static_cast<size_t>(outputs * inputs + o)] += dy[o];
    }
  }
};

// Two hidden tanh layers and a linear head.
struct Network {
  Layer first, second, head;
  Network(int outputs, float head_gain, KeyedRandom& random)
      : first(kInputs, kHidden, std::sqrt(2.f), random),
        second(kHidden, kHidden, std::sqrt(2.f), random),
        head(kHidden, outputs, head_gain, random) {}

  struct Activations {
    std::array<float, kHidden> a, b;
    std::array<float, kNumActions> out;
  };

  void Forward(const float* x, Activations& act) const {
    first.Forward(x, act.a.data());
    for (float& h : act.a) h = std::tanh(h);
    second.Forward(act.a.data(), act.b.data());
    for (float& h : act.b) h = std::tanh(h);
    head.Forward(act.b.data(), act.out.data());
  }

  void Backward(const float* x, const Activations& act, const float* dout) {
    std::array<float, kHidden> db, da;
    head.Backward(act.b.data(), dout, db.data());
    for (size_t i = 0; i < kHidden; ++i) db[i] *= 1 - act.b[i] * act.b[i];
    second.Backward(act.a.data(), db.data(), da.data());
    for (size_t i = 0; i < kHidden; ++i) da[i] *= 1 - act.a[i] * act.a[i];
    first.Backward(x, da.data(), nullptr);
  }

  std::array<Layer*, 3> Layers() { return {&first, &second, &head}; }
};

std::array<float, kNumActions> Softmax(const std::array<float, kNumActions>& logits) {
  const float top = *std::max_element(logits.begin(), logits.end());
  std::array<float, kNumActions> p;
  float sum = 0;
  for (size_t a = 0; a < p.size(); ++a) sum += p[a] = std::exp(logits[a] - top);
  for (float& x : p) x /= sum;
  return p;
}

struct Sample {
  std::array<float, kInputs> x;
  int action;
  float log_probability, value, reward, advantage, target;
  bool done;
};

class Learner {
 public:
  Learner(const DarkRoom& room, int64_t task, uint64_t seed, int64_t streams)
      : room_(room),
        random_(seed, "ppo", static_cast<uint64_t>(task)),
        policy_(kNumActions, 0.01f, random_),
        value_(1, 1.f, random_),
        states_(static_cast<size_t>(streams), room.start) {}

  // Plays `steps` steps from t on in every stream, then learns from them.
  void Rollout(int64_t t, int64_t steps, int64_t task, Histories& histories) {
    const size_t streams = states_.size();
    std::vector<Sample> samples(static_cast<size_t>(steps) * streams);
    for (int64_t k = 0; k < steps; ++k) {
      for (size_t s = 0; s < streams; ++s) {
        Transition& step = histories.at(task, static_cast<int64_t>(s))[static_cast<size_t>(t + k)];
        samples[static_cast<size_t>(k) * streams + s] = Play(s, t + k, k == 0, k == steps - 1, step);
      }
    }
    Advantages(samples, static_cast<size_t>(steps));
    Learn(samples);
  }

 private:
  static std::array<float, kInputs> Input(Cell c) { return {static_cast<float>(c.row), static_cast<float>(c.column)}; }

  Sample Play(size_t stream, int64_t t, bool first, bool last, Transition& step) {
    const Cell state = states_[stream];
    Sample sample{};
    sample.x = Input(state);
    Network::Activations act;
    policy_.Forward(sample.x.data(), act);
    const auto p = Softmax(act.out);
    float u = random_.Uniform();
    while (sample.action < kNumActions - 1 && (u -= p[static_cast<size_t>(sample.action)]) >= 0) ++sample.action;
    sample.log_probability = std::log(p[static_cast<size_t>(sample.action)]);
    value_.Forward(sample.x.data(), act);
    sample.value = act.out[0];
    const Cell after = room_.Step(state, sample.action);
    sample.reward = static_cast<float>(room_.Reward(after));
    sample.done = t % kHorizon == kHorizon - 1;
    step = {static_cast<uint8_t>(state.row),     static_cast<uint8_t>(state.column),
            static_cast<uint8_t>(sample.action), static_cast<uint8_t>(sample.reward),
            static_cast<uint8_t>(after.row),     static_cast<uint8_t>(after.column),
            static_cast<uint8_t>(sample.done),   static_cast<uint8_t>(first ? 1 : last ? 2 : 0)};
    states_[stream] = sample.done ? room_.start : after;
    return sample;
  }

  // Generalised advantage estimation (Schulman et al., arXiv 1506.02438), per stream.
  void Advantages(std::vector<Sample>& samples, size_t steps) const {
    const size_t streams = states_.size();
    for (size_t s = 0; s < streams; ++s) {
      const auto x = Input(states_[s]);
      Network::Activations act;
      value_.Forward(x.data(), act);
      float next_value = act.out[0], advantage = 0;
      for (size_t k = steps; k-- > 0;) {
        Sample& sample = samples[k * streams + s];
        const float alive = sample.done ? 0.f : 1.f;
        const float delta = sample.reward + kGamma * next_value * alive - sample.value;
        advantage = delta + kGamma * kLambda * alive * advantage;
        sample.advantage = advantage;
        sample.target = advantage + sample.value;
        next_value = sample.value;
      }
    }
  }

  void Learn(const std::vector<Sample>& samples) {
    std::vector<size_t> order(samples.size());
    std::iota(order.begin(), order.end(), size_t{0});
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_.Below(i)]);
      for (size_t begin = 0; begin < order.size(); begin += kMinibatch) {
        const size_t end = std::min(order.size(), begin + kMinibatch);
        Update(samples, std::span(order).subspan(begin, end - begin));
      }
    }
  }

  void Update(const std::vector<Sample>& samples, std::span<const size_t> batch) {
    const auto n = static_cast<float>(batch.size());
    float mean = 0, square = 0;
    for (size_t i : batch) mean += samples[i].advantage / n;
    for (size_t i : batch) square += (samples[i].advantage - mean) * (samples[i].advantage - mean);
    const float deviation = std::sqrt(square / std::max(1.f, n - 1));
    for (size_t i : batch) {
      const Sample& sample = samples[i];
      Network::Activations act;
      policy_.Forward(sample.x.data(), act);
      const auto p = Softmax(act.out);
      const float ratio = std::exp(std::log(p[static_cast<size_t>(sample.action)]) - sample.log_probability);
      const float advantage = (sample.advantage - mean) / (deviation + 1e-8f);
      const bool clipped = advantage > 0 ? ratio > 1 + kClip : ratio < 1 - kClip;
      std::array<float, kNumActions> dlogits{};
      for (size_t a = 0; a < dlogits.size() && !clipped; ++a) {
        const float indicator = static_cast<int>(a) == sample.action ? 1.f : 0.f;
        dlogits[a] = -advantage * ratio * (indicator - p[a]) / n;
      }
      policy_.Backward(sample.x.data(), act, dlogits.data());
      value_.Forward(sample.x.data(), act);
      const float dvalue = kValueWeight * 2 * (act.out[0] - sample.target) / n;
      value_.Backward(sample.x.data(), act, &dvalue);
    }
    Adam();
  }

  void Adam() {
    std::array<Layer*, 6> layers;
    std::copy_n(policy_.Layers().begin(), 3, layers.begin());
    std::copy_n(value_.Layers().begin(), 3, layers.begin() + 3);
    double square = 0;
    for (const Layer* layer : layers)
      square += std::inner_product(layer->gradient.begin(), layer->gradient.end(), layer->gradient.begin(), 0.0);
    const auto scale = std::min(1.f, kMaxNorm / (static_cast<float>(std::sqrt(square)) + 1e-6f));
    ++steps_;
    const float bias1 = 1 - std::pow(0.9f, static_cast<float>(steps_)),
                bias2 = 1 - std::pow(0.999f, static_cast<float>(steps_));
    for (Layer* layer : layers) {
      for (size_t i = 0; i < layer->value.size(); ++i) {
        const float g = layer->gradient[i] * scale;
        layer->m[i] = 0.9f * layer->m[i] + 0.1f * g;
        layer->v[i] = 0.999f * layer->v[i] + 0.001f * g * g;
        layer->value[i] -= kRate * (layer->m[i] / bias1) / (std::sqrt(layer->v[i] / bias2) + kAdamEps);
        layer->gradient[i] = 0;
      }
    }
  }

  const DarkRoom& room_;
  KeyedRandom random_;
  Network policy_, value_;
  std::vector<Cell> states_;
  int64_t steps_ = 0;
};

}  // namespace

void Ppo(const DarkRoom& room, int64_t task, uint64_t seed, Histories& histories, const StepsPlayed& played) {
  Learner learner(room, task, seed, histories.streams());
  for (int64_t t = 0; t < histories.length(); t += kRolloutSteps) {
    const int64_t steps = std::min<int64_t>(kRolloutSteps, histories.length() - t);
    learner.Rollout(t, steps, task, histories);
    played(steps);
  }
}

}  // namespace trainyard::ad
