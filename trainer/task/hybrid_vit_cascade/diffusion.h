// Diffusion with v-prediction: the schedule, the three ways to say what the noise was, and DDIM.
//
// Legend: x0 a clean volume, e its noise, x a noised one, t a step of [0, T), a = alpha_bar(t):
//   x = sqrt(a) x0 + sqrt(1 - a) e,   v = sqrt(a) e - sqrt(1 - a) x0   (Salimans and Ho, arXiv 2202.00512)
#ifndef TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_DIFFUSION_H_
#define TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_DIFFUSION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace trainyard::hvc {

// The cosine schedule (Nichol and Dhariwal, arXiv 2102.09672) with s = 0.008 and beta in [1e-4, 0.9999]. Immutable.
class NoiseSchedule {
 public:
  explicit NoiseSchedule(int64_t steps);
  int64_t steps() const { return static_cast<int64_t>(alpha_bar_.size()); }
  double alpha_bar(int64_t t) const { return alpha_bar_[static_cast<size_t>(t)]; }
  // t: (B) int64 on the host -> sqrt(a) and sqrt(1 - a), (B, 1, 1, 1, 1) float32.
  at::Tensor Signal(const at::Tensor& t) const;
  at::Tensor Noise(const at::Tensor& t) const;

 private:
  at::Tensor Look(const std::vector<float>& table, const at::Tensor& t) const;

  std::vector<double> alpha_bar_;
  std::vector<float> signal_, noise_;
};

// (signal, noise) of a sample each, and volumes (B, 1, S, S, S) of one floating type.
struct NoiseLevel {
  at::Tensor signal, noise;

  // `where`: of the volumes.
  NoiseLevel(const NoiseSchedule& schedule, const at::Tensor& t, at::Device where = at::kCPU)
      : signal(schedule.Signal(t).to(where)), noise(schedule.Noise(t).to(where)) {}
  at::Tensor Noised(const at::Tensor& x0, const at::Tensor& e) const;
  at::Tensor Velocity(const at::Tensor& x0, const at::Tensor& e) const;
  at::Tensor CleanOf(const at::Tensor& x, const at::Tensor& v) const;
  at::Tensor NoiseOf(const at::Tensor& x, const at::Tensor& v) const;
};

// The steps at which DDIM calls the network, from T - 1 to 0, evenly spaced. REQUIRES: 1 <= count <= steps.
std::vector<int64_t> DdimSteps(int64_t steps, int64_t count);

// Deterministic DDIM (Song et al., arXiv 2010.02502, eta 0) from the noise `x`: x0 is held in [-1, 1] in each step.
// `velocity(x, t)`: what the network says, t: (B) int64 on the host.
at::Tensor Ddim(const NoiseSchedule& schedule, int64_t count, at::Tensor x,
                const std::function<at::Tensor(const at::Tensor& x, const at::Tensor& t)>& velocity);

}  // namespace trainyard::hvc

#endif  // TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_DIFFUSION_H_
