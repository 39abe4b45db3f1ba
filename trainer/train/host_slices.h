// An engine's slices in the host's memory, where files and the control group read and write.
#ifndef TRAINYARD_TRAINER_TRAIN_HOST_SLICES_H_
#define TRAINYARD_TRAINER_TRAIN_HOST_SLICES_H_

#include <vector>

#include "trainer/parallel/engine.h"

namespace trainyard {

class HostSlices {
 public:
  // `slices` must stay valid. Those that lie in the host's memory are taken as they are; for the others there is room
  // of the same size, not initialised.
  explicit HostSlices(std::vector<StateSlice> slices);

  // The same slices; their values are in the host's memory.
  const std::vector<StateSlice>& slices() const { return here_; }
  // From the engine, and back into it.
  void Fetch();
  void Return();

 private:
  std::vector<StateSlice> there_, here_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_HOST_SLICES_H_
