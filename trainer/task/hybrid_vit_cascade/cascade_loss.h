// The loss of a stage.
#ifndef TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_CASCADE_LOSS_H_
#define TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_CASCADE_LOSS_H_

#include "trainer/task/hybrid_vit_cascade/cascade_data.h"
#include "trainer/task/hybrid_vit_cascade/cascade_model.h"

namespace trainyard::hvc {

// Of each sample, (B) float32.
struct SampleLosses {
  at::Tensor diffusion;  // mean square error of v, or that over Uncertainty's square
  at::Tensor physics;    // PhysicsLoss of the clean volume that v implies, times alpha_bar: of noise nothing is seen
};

SampleLosses LossesOf(const CascadeModel& model, const Pass& pass, size_t stage, const CascadeBatch& batch,
                      const IntensityMap& map, Weighting weighting);

}  // namespace trainyard::hvc

#endif  // TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_CASCADE_LOSS_H_
