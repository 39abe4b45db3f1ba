#include "trainer/task/hybrid_vit_cascade/cascade_loss.h"

#include <ATen/TensorOperators.h>

#include "trainer/model/rows.h"
#include "trainer/task/hybrid_vit_cascade/projector.h"

namespace trainyard::hvc {

SampleLosses LossesOf(const CascadeModel& model, const Pass& pass, size_t stage, const CascadeBatch& batch,
                      const IntensityMap& map, Weighting weighting) {
  const NoiseLevel level(model.schedule(), batch.t);
  const at::Tensor x = level.Noised(batch.volume, batch.noise);
  const EncodedXrays xrays = model.Encode(pass, stage, batch.xrays);
  const at::Tensor v = model.Velocity(pass, stage, {x, batch.t, batch.previous}, xrays);
  at::Tensor error = (v - level.Velocity(batch.volume, batch.noise)).square();
  if (weighting == Weighting::kEven) error = error / model.Uncertainty(stage, batch.t).square();
  const double voxels = static_cast<double>(error.numel() / error.size(0));
  const at::Tensor physics = PhysicsLoss(level.CleanOf(x, v), batch.extent, batch.xrays, map);
  return {SumOfEach(error) / voxels, physics * level.signal.view({-1}).square()};
}

}  // namespace trainyard::hvc
