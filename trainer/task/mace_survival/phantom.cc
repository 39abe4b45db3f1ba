#include "trainer/task/mace_survival/phantom.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "trainer/task/mace_survival/exact_math.h"

namespace trainyard::mace {
namespace {

using Point = std::array<double, 3>;  // mm; x from the right, y from the front, z from the top

constexpr Point kField = {200, 200, 120};
constexpr double kAir = -1000, kFat = -95, kMuscle = 45, kLung = -850, kBlood = 40, kVessel = 55;
constexpr double kVesselRadius = 2.5;

struct Ellipsoid {
  Point centre, radius;
  // Below 1 inside.
  double At(const Point& p) const {
    double sum = 0;
    for (size_t i = 0; i < 3; ++i) {
      const double d = (p[i] - centre[i]) / radius[i];
      sum += d * d;
    }
    return sum;
  }
};

// A quadratic Bezier curve.
struct Course {
  Point a, b, c;
  Point At(double t) const {
    Point p;
    for (size_t i = 0; i < 3; ++i) p[i] = (1 - t) * (1 - t) * a[i] + 2 * t * (1 - t) * b[i] + t * t * c[i];
    return p;
  }
};

struct Deposit {
  Artery artery;
  Ellipsoid shape;
  double hu;
};

struct Anatomy {
  double age, fat, bone;
  bool female;
  Ellipsoid heart;
  std::array<Course, kArteries> courses;
  std::vector<Deposit> deposits;
};

// Four curves on the heart's surface, in units of its radii.
constexpr std::array<std::array<Point, 3>, kArteries> kCourses = {
    {{{{0.10, -0.55, -0.75}, {0.25, -0.65, -0.70}, {0.38, -0.72, -0.60}}},
     {{{0.38, -0.72, -0.60}, {0.55, -1.05, 0.05}, {0.35, -0.70, 0.85}}},
     {{{0.38, -0.72, -0.60}, {1.15, -0.15, -0.45}, {0.85, 0.50, 0.25}}},
     {{{-0.15, -0.60, -0.70}, {-1.15, -0.50, -0.10}, {-0.55, 0.30, 0.75}}}}};
constexpr std::array<double, kArteries> kLesionRates = {0.35, 1.7, 0.9, 1.2};

Anatomy Draw(KeyedRandom& random) {
  Anatomy body;
  body.age = 35 + 50 * (random.UniformDouble() + random.UniformDouble()) / 2;
  body.age = static_cast<double>(static_cast<int64_t>(body.age));
  body.female = random.UniformDouble() < 0.45;
  body.fat = (body.female ? 26 : 12) + 4 * random.UniformDouble();
  body.bone = 520 - 4.5 * (body.age - 35) + 15 * ExactNormal(random);
  const double size = (body.female ? 0.93 : 1.0) * (1 + 0.003 * (body.age - 60)) * (1 + 0.03 * ExactNormal(random));
  body.heart.centre = {108 + 2 * ExactNormal(random), 92 + 2 * ExactNormal(random), 60 + 2 * ExactNormal(random)};
  body.heart.radius = {42 * size, 38 * size, 44 * size};
  for (size_t a = 0; a < kArteries; ++a) {
    std::array<Point, 3> points = kCourses[a];
    for (Point& p : points) {
      for (size_t i = 0; i < 3; ++i)
        p[i] = body.heart.centre[i] + body.heart.radius[i] * (p[i] + 0.03 * ExactNormal(random));
    }
    body.courses[a] = {points[0], points[1], points[2]};
  }
  // A disposition to calcify, of mean about 1.
  const double disposition = ExactExp(0.8 * ExactNormal(random) - 0.32);
  const double burden = disposition * ExactExp(0.035 * (body.age - 60)) * (body.female ? 0.6 : 1.15);
  for (size_t a = 0; a < kArteries; ++a) {
    const int64_t n = std::min<int64_t>(8, ExactPoisson(random, std::min(8.0, kLesionRates[a] * burden)));
    for (int64_t k = 0; k < n; ++k) {
      Deposit deposit{.artery = static_cast<Artery>(a), .shape = {}, .hu = 0};
      deposit.shape.centre = body.courses[a].At(0.05 + 0.9 * random.UniformDouble());
      const double radius = 2.2 + 1.2 * ExactExponential(random);
      for (double& r : deposit.shape.radius) r = std::min(9.0, radius * (0.8 + 0.4 * random.UniformDouble()));
      const double u = random.UniformDouble(), v = random.UniformDouble();  // in this order
      deposit.hu = 250 + 1250 * u * v;
      body.deposits.push_back(deposit);
    }
  }
  return body;
}

// What is at a place but for arteries. The body is a cylinder that the field of view cuts.
double Tissue(const Anatomy& body, const Point& p) {
  const double dx = (p[0] - 100) / 118, dy = (p[1] - 100) / 96, rim = std::sqrt(dx * dx + dy * dy);
  if (rim > 1) return kAir;
  if (body.heart.At(p) < 1) return kBlood;
  const double bx = p[0] - 100, by = p[1] - 172;
  if (bx * bx + by * by < 18 * 18) return body.bone;
  if (rim > 1 - body.fat / 107) return kFat;
  const Ellipsoid right{{52, 105, 60}, {40, 62, 95}}, left{{150, 105, 60}, {38, 62, 95}};
  if (right.At(p) < 1 || left.At(p) < 1) return kLung;
  return kMuscle;
}

class Painter {
 public:
  Painter(const std::array<int64_t, 3>& voxels, Phantom& phantom) : voxels_(voxels), volume_(phantom.image.volume) {
    for (size_t i = 0; i < 3; ++i) spacing_[i] = kField[i] / static_cast<double>(voxels[i]);
    volume_.shape = {voxels[0], voxels[1], voxels[2]};
    volume_.values.assign(static_cast<size_t>(voxels[0] * voxels[1] * voxels[2]), 0);
  }
  const Point& spacing() const { return spacing_; }

  void Fill(const Anatomy& body, KeyedRandom& noise) {
    for (int64_t x = 0; x < voxels_[0]; ++x) {
      for (int64_t y = 0; y < voxels_[1]; ++y) {
        for (int64_t z = 0; z < voxels_[2]; ++z) {
          const uint32_t bits = noise.NextU32();  // a sum of two uniform draws, sd 13 HU
          const double grain = static_cast<double>((bits & 31) + ((bits >> 5) & 31)) - 31;
          At(x, y, z) = static_cast<float>(Tissue(body, Centre({x, y, z})) + grain);
        }
      }
    }
  }
  // visit(voxel, how much of it is inside, 0 to 1) where any is.
  template <class Visit>
  void Inside(const Ellipsoid& shape, Visit visit) {
    std::array<int64_t, 3> from, to;
    for (size_t i = 0; i < 3; ++i) {
      const double reach = shape.radius[i] + spacing_[i];
      from[i] = std::max<int64_t>(0, static_cast<int64_t>((shape.centre[i] - reach) / spacing_[i]));
      to[i] = std::min(voxels_[i], static_cast<int64_t>((shape.centre[i] + reach) / spacing_[i]) + 1);
    }
    for (int64_t x = from[0]; x < to[0]; ++x) {
      for (int64_t y = from[1]; y < to[1]; ++y) {
        for (int64_t z = from[2]; z < to[2]; ++z) {
          const double share = ShareInside(shape, {x, y, z});
          if (share > 0) visit(std::array<int64_t, 3>{x, y, z}, share);
        }
      }
    }
  }
  float& At(int64_t x, int64_t y, int64_t z) {
    return volume_.values[static_cast<size_t>((x * voxels_[1] + y) * voxels_[2] + z)];
  }

 private:
  Point Centre(const std::array<int64_t, 3>& v) const {
    Point p;
    for (size_t i = 0; i < 3; ++i) p[i] = (static_cast<double>(v[i]) + 0.5) * spacing_[i];
    return p;
  }
  // Of 4 x 4 x 4 points in the voxel.
  double ShareInside(const Ellipsoid& shape, const std::array<int64_t, 3>& v) const {
    constexpr int kPoints = 4;
    int inside = 0;
    for (int i = 0; i < kPoints * kPoints * kPoints; ++i) {
      const std::array<int, 3> at = {i % kPoints, i / kPoints % kPoints, i / kPoints / kPoints};
      Point p;
      for (size_t k = 0; k < 3; ++k) p[k] = (static_cast<double>(v[k]) + (at[k] + 0.5) / kPoints) * spacing_[k];
      inside += shape.At(p) < 1 ? 1 : 0;
    }
    return static_cast<double>(inside) / (kPoints * kPoints * kPoints);
  }

  std::array<int64_t, 3> voxels_;
  Point spacing_;
  Volume& volume_;
};

void PaintVessels(const Anatomy& body, Painter& painter) {
  constexpr int kBeads = 40;
  for (const Course& course : body.courses) {
    for (int i = 0; i <= kBeads; ++i) {
      const Ellipsoid bead{course.At(i / double{kBeads}), {kVesselRadius, kVesselRadius, kVesselRadius}};
      painter.Inside(bead, [&](const auto& v, double share) {
        if (share >= 0.5) painter.At(v[0], v[1], v[2]) = static_cast<float>(kVessel);
      });
    }
  }
}

void PaintDeposit(const Deposit& deposit, Painter& painter) {
  painter.Inside(deposit.shape, [&](const auto& v, double share) {
    float& hu = painter.At(v[0], v[1], v[2]);
    const double mixed = share * deposit.hu + (1 - share) * static_cast<double>(hu);
    hu = static_cast<float>(static_cast<int64_t>(std::max(mixed, static_cast<double>(hu))));
  });
}

// Of what is painted. A voxel that several deposits fill by half is the first one's.
std::vector<Lesion> Count(const std::vector<Deposit>& deposits, const std::array<int64_t, 3>& voxels,
                          Painter& painter) {
  std::vector<Lesion> lesions;
  std::set<std::array<int64_t, 3>> counted;
  for (const Deposit& deposit : deposits) {
    Lesion& lesion =
        lesions.emplace_back(Lesion{.artery = deposit.artery, .centre = deposit.shape.centre, .voxels = {}});
    painter.Inside(deposit.shape, [&](const auto& v, double share) {
      const auto hu = static_cast<double>(painter.At(v[0], v[1], v[2]));
      if (share < 0.5 || hu < 130 || !counted.insert(v).second) return;
      lesion.voxels.push_back({v[2], hu, (static_cast<double>(v[2]) + 0.5) / static_cast<double>(voxels[2])});
    });
  }
  return lesions;
}

}  // namespace

Phantom MakePhantom(const std::array<int64_t, 3>& voxels, uint64_t seed, int64_t index) {
  KeyedRandom random(seed, "mace anatomy", static_cast<uint64_t>(index));
  KeyedRandom noise(seed, "mace noise", static_cast<uint64_t>(index));
  const Anatomy body = Draw(random);
  Phantom phantom;
  Painter painter(voxels, phantom);
  painter.Fill(body, noise);
  PaintVessels(body, painter);
  const Point& spacing = painter.spacing();
  Patient patient{.age = body.age,
                  .female = body.female,
                  .pixel_area = spacing[0] * spacing[1],
                  .slice_height = spacing[2],
                  .lesions = {}};
  for (const Deposit& deposit : body.deposits) PaintDeposit(deposit, painter);
  patient.lesions = Count(body.deposits, voxels, painter);
  phantom.features = FeaturesOf(patient);
  const auto feature = [&](const char* name) {
    return phantom.features[static_cast<size_t>(std::ranges::find(FeatureNames(), name) - FeatureNames().begin())];
  };
  phantom.agatston = feature("AgatstonScore2D");
  phantom.lesions = feature("NumLesion3D");
  phantom.spread = feature("numArtCalc");
  phantom.age = body.age;
  phantom.female = body.female ? 1 : 0;
  // Voxels count from the patient's right, front and top: against all three axes of RAS, from half a voxel inside.
  Affine& affine = phantom.image.affine = {};
  for (size_t i = 0; i < 3; ++i) {
    affine[4 * i + i] = -spacing[i];
    affine[4 * i + 3] = (kField[i] - spacing[i]) / 2;
  }
  affine[15] = 1;
  phantom.image.type = NiftiType::kInt16;
  return phantom;
}

}  // namespace trainyard::mace
