// AdamW over flat buffers, in ranges of equal rate and decay, and the average of what it has updated. It knows neither
// parameters nor ranks: an engine says which elements it updates.
#ifndef TRAINYARD_TRAINER_OPTIM_ADAMW_H_
#define TRAINYARD_TRAINER_OPTIM_ADAMW_H_

#include <cstdint>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/device/flat_math.h"

namespace trainyard {

// Elements [begin, end), multiples of 64, of every buffer.
struct UpdateRange {
  int64_t begin = 0, end = 0;
  double lr = 1;  // factor of the schedule's rate
  double weight_decay = 0;
};

struct AdamWBuffers {
  float *master, *exp_avg, *exp_avg_sq;
  const float* gradient;
  float* average = nullptr;  // with optim.ema_decay
};

// torch.nn.utils.clip_grad_norm_: min(1, clip / (norm + 1e-6)); 1 when clip is 0.
float ClipScale(double norm, double clip);

// One update.
struct AdamWStep {
  int64_t number = 1;    // from 1; skipped steps are not counted
  double lr = 0;         // the schedule's rate
  float grad_scale = 1;  // gradients are multiplied by it first
};

class AdamW {
 public:
  AdamW(const OptimConfig& config, std::vector<UpdateRange> ranges);

  // Updates elements [begin, end), multiples of 64, of master and moments, and moves their average towards the new
  // master: decay x average + (1 - decay) x master (torch.optim.swa_utils.get_ema_avg_fn). `buffers` begin with the
  // element `begin`, in the memory that `math` is for. The same bits however the elements are cut.
  void Step(FlatMath& math, const AdamWBuffers& buffers, int64_t begin, int64_t end, const AdamWStep& step) const;

 private:
  const OptimConfig config_;
  const std::vector<UpdateRange> ranges_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_OPTIM_ADAMW_H_
