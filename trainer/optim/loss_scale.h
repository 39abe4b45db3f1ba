// Dynamic loss scaling (Micikevicius et al., arXiv 1710.03740; torch.amp.GradScaler's rule): float16 has no numbers
// below 6e-8, so losses are multiplied by a factor, and gradients divided by it when they are float32 again.
#ifndef TRAINYARD_TRAINER_OPTIM_LOSS_SCALE_H_
#define TRAINYARD_TRAINER_OPTIM_LOSS_SCALE_H_

#include <cstdint>

namespace trainyard {

struct LossScale {
  double factor = 1;  // always a power of two: scaling rounds nothing
  int64_t clean = 0;  // updates since it last changed, without one that was left out

  // A gradient that is not finite may be too large a factor's fault.
  bool MayOverflow() const { return factor > 1; }
  // After each step. `finite`: loss and gradient were, and the step was an update; doubles after `interval` of those in
  // a row, while the factor is one that float32 has. Else halves, down to 1.
  void Update(bool finite, int64_t interval);
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_OPTIM_LOSS_SCALE_H_
