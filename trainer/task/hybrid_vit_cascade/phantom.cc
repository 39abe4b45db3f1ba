#include "trainer/task/hybrid_vit_cascade/phantom.h"

#include <algorithm>
#include <cmath>

#include "trainer/base/random.h"

namespace trainyard::hvc {
namespace {

constexpr double kAir = -1000;

struct Draws {
  KeyedRandom random;
  double Between(double low, double high) { return low + (high - low) * random.UniformDouble(); }
};

// How much of a voxel is inside where `outside` voxels lie between its middle and the edge.
double Share(double outside) { return std::clamp(0.5 - outside, 0.0, 1.0); }

void Blend(double& hu, double of, double share) { hu += (of - hu) * share; }

// Voxels from the surface of an ellipsoid, along the ray from its centre; negative inside.
double Outside(const Point& p, const Ellipsoid& e, double voxel) {
  double scaled = 0, plain = 0;
  for (size_t i = 0; i < 3; ++i) {
    const double d = p[i] - e.centre[i], r = d / e.half_axes[i];
    scaled += r * r;
    plain += d * d;
  }
  const double radius = std::sqrt(scaled);
  if (radius == 0) return -1e9;
  return std::sqrt(plain) * (1 - 1 / radius) / voxel;
}

double ShareOf(const Point& p, const Ellipsoid& e, double voxel) { return Share(Outside(p, e, voxel)); }

// Voxels from a vertical cylinder around (x, z).
double OutsideCylinder(const Point& p, const Point& x_z_radius, double voxel) {
  const double dx = p[2] - x_z_radius[0], dz = p[0] - x_z_radius[1];
  return (std::sqrt(dx * dx + dz * dz) - x_z_radius[2]) / voxel;
}

Point Bent(const Phantom& phantom, const Point& p) {
  Point bent = p;
  for (size_t i = 0; i < phantom.bend_at.size(); ++i) {
    double distance = 0;
    for (size_t j = 0; j < 3; ++j) distance += (p[j] - phantom.bend_at[i][j]) * (p[j] - phantom.bend_at[i][j]);
    if (distance >= 1) continue;
    const double bump = (1 - distance) * (1 - distance);
    for (size_t j = 0; j < 3; ++j) bent[j] += bump * phantom.bend_by[i][j];
  }
  return bent;
}

// Ribs: where a tilted plane of one of the levels cuts the chest's wall.
double RibShare(const Phantom& phantom, const Point& p, double voxel) {
  const Ellipsoid& body = phantom.body.front();
  const double z = (p[0] - body.centre[0]) / (0.86 * body.half_axes[0]), x = p[2] / (0.86 * body.half_axes[2]);
  const double wall = std::sqrt(z * z + x * x) - 1;
  constexpr double kDistance = 0.2, kThickness = 0.035;
  const double level = p[1] - phantom.ribs_tilt * p[0];
  if (level < -0.85 || level > 0.55) return 0;
  const double from = (level + 0.85) / kDistance, to_rib = std::abs(from - std::floor(from) - 0.5) * kDistance;
  return std::min(Share((to_rib - kThickness) / voxel),
                  Share((std::abs(wall) * body.half_axes[0] - kThickness) / voxel));
}

double HuAt(const Phantom& phantom, const Point& at, double voxel) {
  const Point p = Bent(phantom, at);
  double hu = kAir;
  for (const Ellipsoid& part : phantom.body) Blend(hu, part.hu, ShareOf(p, part, voxel));
  const double inside = ShareOf(p, phantom.body.front(), voxel);
  if (inside == 0) return hu;
  Blend(hu, phantom.rib_hu, RibShare(phantom, p, voxel) * inside);
  for (size_t side = 0; side < phantom.lungs.size(); ++side) {
    const double dome = side == 0 ? phantom.right_dome : phantom.left_dome;
    const double dx = p[2] - phantom.lungs[side].centre[2], dz = p[0] - phantom.lungs[side].centre[0];
    const double below = p[1] - (dome + 0.5 * (dx * dx + dz * dz));
    Blend(hu, phantom.lungs[side].hu, std::min(ShareOf(p, phantom.lungs[side], voxel), Share(below / voxel)));
  }
  for (const Ellipsoid& organ : phantom.organs) Blend(hu, organ.hu, ShareOf(p, organ, voxel));
  for (const Ellipsoid& nodule : phantom.nodules) Blend(hu, nodule.hu, ShareOf(p, nodule, voxel));
  Blend(hu, phantom.spine_hu, Share(OutsideCylinder(p, phantom.spine, voxel)) * inside);
  if (p[1] < -0.15) Blend(hu, kAir, Share(OutsideCylinder(p, phantom.trachea, voxel)));
  return hu;
}

}  // namespace

Phantom MakePhantom(uint64_t seed, uint64_t index) {
  Draws d{KeyedRandom(seed, "thorax", index)};
  Phantom p{};
  const double wide = d.Between(0.72, 0.92), deep = d.Between(0.48, 0.66), air = d.Between(0.85, 1.12);
  p.body = {{{0, 0.1, 0}, {deep, 2.2, wide}, 40}};
  const double lung_x = 0.46 * wide, lung_hu = d.Between(-860, -740);
  p.lungs = {{{0, -0.1, -lung_x}, {0.74 * deep, 0.72 * air, 0.36 * wide * air}, lung_hu},
             {{0, -0.1, lung_x}, {0.74 * deep, 0.70 * air, 0.34 * wide * air}, lung_hu}};
  const double heart = d.Between(0.8, 1.2);
  p.organs = {
      {{-0.22 * deep, d.Between(0.12, 0.26), d.Between(0.1, 0.2)}, {0.3 * heart, 0.3 * heart, 0.27 * heart}, 45}};
  const auto nodules = static_cast<int64_t>(d.random.Below(6));
  for (int64_t i = 0; i < nodules; ++i) {
    const Ellipsoid& lung = p.lungs[d.random.Below(2)];
    const double radius = d.Between(0.04, 0.09);
    Ellipsoid nodule{{}, {radius, radius, radius}, d.Between(0, 100)};
    for (size_t j = 0; j < 3; ++j) nodule.centre[j] = lung.centre[j] + d.Between(-0.5, 0.5) * lung.half_axes[j];
    p.nodules.push_back(nodule);
  }
  p.spine = {d.Between(-0.03, 0.03), 0.66 * deep, d.Between(0.1, 0.13)};
  p.spine_hu = d.Between(300, 700);
  p.rib_hu = d.Between(400, 900);
  p.ribs_tilt = d.Between(-0.5, -0.2);
  p.trachea = {0, 0.15 * deep, 0.06};
  p.right_dome = d.Between(0.25, 0.45);
  p.left_dome = p.right_dome + d.Between(0.05, 0.12);
  for (size_t i = 0; i < p.bend_at.size(); ++i) {
    for (size_t j = 0; j < 3; ++j) {
      p.bend_at[i][j] = d.Between(-0.7, 0.7);
      p.bend_by[i][j] = d.Between(-0.06, 0.06);
    }
  }
  p.noise_hu = d.random.Below(2) == 0 ? 10 : 30;
  return p;
}

std::vector<int16_t> RenderPhantom(const Phantom& phantom, int64_t size, uint64_t seed, uint64_t index) {
  std::vector<int16_t> voxels;
  voxels.reserve(static_cast<size_t>(size * size * size));
  KeyedRandom noise(seed, "thorax noise", index);
  const double voxel = 2 / static_cast<double>(size);
  const auto at = [voxel](int64_t i) { return (static_cast<double>(i) + 0.5) * voxel - 1; };
  for (int64_t d = 0; d < size; ++d) {
    for (int64_t h = 0; h < size; ++h) {
      for (int64_t w = 0; w < size; ++w) {
        // Two uniform draws have a triangle's distribution, of deviation 1 / sqrt(6): close to normal, and exact.
        const double draw = noise.UniformDouble() + noise.UniformDouble() - 1;
        const double hu = HuAt(phantom, {at(d), at(h), at(w)}, voxel) + draw * std::sqrt(6.0) * phantom.noise_hu;
        voxels.push_back(static_cast<int16_t>(std::floor(std::max(hu, -1024.0) + 0.5)));
      }
    }
  }
  return voxels;
}

}  // namespace trainyard::hvc
