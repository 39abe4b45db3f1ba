// What AdamW moves, against a triad (McCalpin's STREAM: a = b + s c) on the same threads. One line of JSON.
//
// usage: adamw_rate MILLIONS_OF_PARAMETERS THREADS
#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "trainer/device/host_device.h"
#include "trainer/optim/adamw.h"
#include "trainer/threads/parallel_for.h"

namespace {

using trainyard::ParallelFor;

constexpr int kRounds = 7;

// The best of several rounds, in GB/s.
double Rate(double bytes, const std::function<void()>& run) {
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    best = std::max(best, bytes / seconds.count() / 1e9);
  }
  return best;
}

double AdamWRate(int64_t n, bool averages, at::Tensor* state, const at::Tensor& gradient) {
  trainyard::OptimConfig config;
  if (averages) config.ema_decay = 0.999;
  const trainyard::AdamW adamw(config, {{.begin = 0, .end = n, .lr = 1, .weight_decay = 0.01}});
  const trainyard::AdamWBuffers buffers{state[0].data_ptr<float>(), state[1].data_ptr<float>(),
                                        state[2].data_ptr<float>(), gradient.const_data_ptr<float>(),
                                        averages ? state[3].data_ptr<float>() : nullptr};
  // Reads parameters, moments and gradient, writes all but the gradient; an average is read and written.
  return Rate(static_cast<double>(n) * (averages ? 36 : 28),
              [&] { adamw.Step(trainyard::HostMath(), buffers, 0, n, {.number = 10, .lr = 1e-3, .grad_scale = 1}); });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int64_t n = std::atoll(argv[1]) * 1'000'000 / 64 * 64;
  at::set_num_threads(std::atoi(argv[2]));
  at::Tensor state[] = {at::zeros({n}), at::zeros({n}), at::zeros({n}), at::zeros({n})};
  const at::Tensor gradient = at::full({n}, 0.01);
  float *a = state[0].data_ptr<float>(), *b = state[1].data_ptr<float>(), *c = state[2].data_ptr<float>();
  const double triad = Rate(static_cast<double>(n) * 12, [&] {
    ParallelFor(0, n, 16384, [&](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) a[i] = b[i] + 0.5f * c[i];
    });
  });
  std::printf("{\"parameters\": %lld, \"threads\": %d, \"triad\": %.2f, \"adamw\": %.2f, \"adamw_ema\": %.2f}\n",
              static_cast<long long>(n), at::get_num_threads(), triad, AdamWRate(n, false, state, gradient),
              AdamWRate(n, true, state, gradient));
}
