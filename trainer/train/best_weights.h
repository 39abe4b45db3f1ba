// The weights of a stage's best evaluation (the averages, where it has any), where the next stage starts from them.
// They are state of the run as moments are: in its checkpoints, under "best.", so that a resume finds those that it
// remembers, wherever run.dir is.
#ifndef TRAINYARD_TRAINER_TRAIN_BEST_WEIGHTS_H_
#define TRAINYARD_TRAINER_TRAIN_BEST_WEIGHTS_H_

#include <string>
#include <vector>

#include "trainer/parallel/engine.h"

namespace trainyard {

// A copy of the weights that the engine of one stage holds on this rank, trained or resting, and its buffers; float32.
class BestWeights {
 public:
  bool empty() const { return kept_.empty(); }
  // Replaces what was kept. REQUIRES: no checkpoint copies from Slices() now.
  void Keep(Engine& engine);
  // Puts them back into the engine that they were kept from, or its like; averages begin with them. REQUIRES: !empty().
  void Restore(Engine& engine) const;
  void Forget() { kept_.clear(); }
  // To save and to load. The views stay valid until Forget.
  std::vector<StateSlice> Slices();

 private:
  struct Kept {
    StateSlice of;      // the engine's
    at::Tensor values;  // in the host's memory
  };
  std::vector<Kept> kept_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_BEST_WEIGHTS_H_
