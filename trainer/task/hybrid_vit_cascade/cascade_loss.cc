#include "trainer/task/hybrid_vit_cascade/cascade_loss.h"

#include <ATen/TensorOperators.h>

#include "trainer/model/rows.h"
#include "trainer/task/hybrid_vit_cascade/projector.h"

namespace trainyard::hvc {

SampleLosses LossesOf(const CascadeModel& model, const Pass& pass, size_t stage, const CascadeBatch& batch,
                      const IntensityMap& map, Weighting weighting) {
  const at::Tensor volume = pass.Upload(batch.volume), noise = pass.Upload(batch.noise),
                   images = pass.Upload(batch.xrays), extent = pass.Upload(batch.extent);
  const at::Tensor previous = batch.previous.defined() ? pass.Upload(batch.previous) : at::Tensor();
  const NoiseLevel level(model.schedule(), batch.t, volume.device());
  const at::Tensor x = level.Noised(volume, noise);
  const EncodedXrays xrays = model.Encode(pass, stage, images);
  const at::Tensor v = model.Velocity(pass, stage, {x, batch.t, previous}, xrays);
  at::Tensor error = (v - level.Velocity(volume, noise)).square();
  if (weighting == Weighting::kEven) error = error / model.Uncertainty(stage, batch.t).to(error.device()).square();
  const double voxels = static_cast<double>(error.numel() / error.size(0));
  const at::Tensor physics = PhysicsLoss(level.CleanOf(x, v), extent, images, map);
  return {SumOfEach(error) / voxels, physics * level.signal.view({-1}).square()};
}

}  // namespace trainyard::hvc
