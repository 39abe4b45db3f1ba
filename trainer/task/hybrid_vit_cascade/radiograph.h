// X-rays of a volume on the host, in double precision: what the generator writes. projector.h is the same, to train
// with.
#ifndef TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_RADIOGRAPH_H_
#define TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_RADIOGRAPH_H_

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/task/hybrid_vit_cascade/options.h"

namespace trainyard::hvc {

struct Radiographs {
  std::vector<double> front, side;  // (size, size) of [0, 1]: (H, W), and (H, D)
};

// Line integrals through size^3 voxels (D, H, W) in HU of a cube of `extent_mm`; projector.h says of what, and which
// are 0 and 1. HU beyond map.hu_low or map.hu_high count as that.
Radiographs Radiograph(std::span<const int16_t> hu, int64_t size, double extent_mm, const IntensityMap& map);

// (size, size) -> (pixels, pixels), bilinear between the middles of pixels (align_corners false).
std::vector<double> ScaledImage(std::span<const double> image, int64_t size, int64_t pixels);

}  // namespace trainyard::hvc

#endif  // TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_RADIOGRAPH_H_
