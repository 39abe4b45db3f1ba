// Thorax phantoms: what a synthetic patient's CT is made of.
//
// Additions, products, quotients and square roots of doubles alone, in a fixed order: IEEE 754 gives them the same bits
// on every machine, where exp and cos differ between libraries.
#ifndef TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_PHANTOM_H_
#define TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_PHANTOM_H_

#include <array>
#include <cstdint>
#include <vector>

namespace trainyard::hvc {

// Coordinates (z, y, x) of the box [-1, 1]^3: from front to back, from head to feet, and from the image's left to its
// right. The heart is at x > 0 and the liver's dome at x < 0, so no axis is like another, nor like itself reversed.
using Point = std::array<double, 3>;

struct Ellipsoid {
  Point centre, half_axes;
  double hu;
};

struct Phantom {
  std::vector<Ellipsoid> body, lungs, organs, nodules;
  Point spine;  // x and z of its middle, and its radius
  double spine_hu, rib_hu, ribs_tilt;
  Point trachea;                 // x, z, radius
  double right_dome, left_dome;  // y of the diaphragm under each lung
  std::array<Point, 4> bend_at;  // smooth deformation: bumps, and where to
  std::array<Point, 4> bend_by;
  double noise_hu;  // deviation: one of two levels
};

// The patient `index` of a data set: a pure function of both.
Phantom MakePhantom(uint64_t seed, uint64_t index);

// HU of size^3 voxels with their noise, row-major (D, H, W): index (d, h, w) is at (z, y, x) of the box, in the middle
// of its voxel. Edges are a voxel wide.
std::vector<int16_t> RenderPhantom(const Phantom& phantom, int64_t size, uint64_t seed, uint64_t index);

}  // namespace trainyard::hvc

#endif  // TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_PHANTOM_H_
