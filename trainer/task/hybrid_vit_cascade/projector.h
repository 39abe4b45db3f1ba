// X-rays of a volume: parallel beams, one image from the front and one from the side.
//
// Legend: B batch, (D, H, W) a volume's axes: front to back, head to feet, image's left to right.
#ifndef TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_PROJECTOR_H_
#define TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_PROJECTOR_H_

#include <ATen/core/Tensor.h>

#include <vector>

#include "trainer/task/hybrid_vit_cascade/options.h"

namespace trainyard::hvc {

// Where the images of a patient lie: {posterior-anterior, lateral}.
constexpr int64_t kFront = 0, kSide = 1, kViews = 2;

// volume: (B, 1, D, H, W) of [-1, 1], extent: (B, 2), the millimetres of the box along D and W -> the front's (B, H, W)
// and the side's (B, H, D), of [-1, 1]; differentiable.
//
// A pixel is the line integral of mu = mu_water (1 + HU / 1000) along its beam, which is -ln of the share of photons
// that arrive, in the fixed window from 0 (-1, black) to drr_window (1, white). The integral is a mean over the axis
// times the box's extent, so that it is the same for any number of voxels.
std::vector<at::Tensor> Project(const at::Tensor& volume, const at::Tensor& extent, const IntensityMap& map);

// Mean square over pixels and views between the projections, scaled to the X-rays' size, and the X-rays: (B).
//   volume: clamped to [-1, 1] first; xrays: (B, 2, 1, P, P) of [-1, 1]
at::Tensor PhysicsLoss(const at::Tensor& volume, const at::Tensor& extent, const at::Tensor& xrays,
                       const IntensityMap& map);

}  // namespace trainyard::hvc

#endif  // TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_PROJECTOR_H_
