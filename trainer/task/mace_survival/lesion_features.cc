#include "trainer/task/mace_survival/lesion_features.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace trainyard::mace {
namespace {

constexpr std::array<const char*, kArteries> kArteryNames = {"LM", "LAD", "LCX", "RCA"};
constexpr std::array<double, 4> kLimits = {200, 300, 400, 600};  // of the histograms' five bins, HU
constexpr double kMassOfHu = 1e-3;                               // mg per mm^3 and HU, about a phantom's calibration
constexpr double kAgatstonSlice = 3;                             // mm

// Agatston's weight of a peak density.
double WeightOf(double peak) { return peak < 130 ? 0 : peak < 200 ? 1 : peak < 300 ? 2 : peak < 400 ? 3 : 4; }

struct Moments {
  double n = 0, sum = 0, squares = 0, cubes = 0, fourths = 0, most = 0;
  void Add(double x) {
    n += 1;
    sum += x;
    squares += x * x;
    cubes += x * x * x;
    fourths += x * x * x * x;
    most = std::max(most, x);
  }
  double mean() const { return n > 0 ? sum / n : 0; }
  double variance() const { return n > 0 ? std::max(0.0, squares / n - mean() * mean()) : 0; }
  double skewness() const {
    const double m = mean(), v = variance();
    return v > 1e-6 ? (cubes / n - 3 * m * v - m * m * m) / (v * std::sqrt(v)) : 0;
  }
  double kurtosis() const {
    const double m = mean(), v = variance();
    if (v <= 1e-6) return 0;
    return (fourths / n - 4 * m * cubes / n + 6 * m * m * squares / n - 3 * m * m * m * m) / (v * v);
  }
};

// Of one artery, or of all.
struct Found {
  double agatston2d = 0, agatston3d = 0, mass = 0, volume = 0, area = 0, lesions = 0;
  Moments hu;
  std::vector<const Lesion*> places;  // from the top down

  void Add(const Lesion& lesion, const Patient& patient) {
    if (lesion.voxels.empty()) return;
    const double voxel = patient.pixel_area * patient.slice_height;
    std::map<int64_t, std::pair<double, double>> slices;  // voxels and peak
    double peak = 0;
    for (const LesionVoxel& v : lesion.voxels) {
      auto& [count, most] = slices[v.slice];
      count += 1;
      most = std::max(most, v.hu);
      peak = std::max(peak, v.hu);
      mass += v.hu * voxel * kMassOfHu;
      hu.Add(v.hu);
    }
    for (const auto& [slice, found] : slices)
      agatston2d += found.first * patient.pixel_area * WeightOf(found.second) * patient.slice_height / kAgatstonSlice;
    const auto n = static_cast<double>(lesion.voxels.size());
    agatston3d += n * voxel / kAgatstonSlice * WeightOf(peak);
    volume += n * voxel;
    area += n * patient.pixel_area;
    lesions += 1;
    places.push_back(&lesion);
  }
  void Sort() {
    std::ranges::stable_sort(places, [](const Lesion* a, const Lesion* b) { return a->centre[2] < b->centre[2]; });
  }
  double Height() const { return places.empty() ? 0 : places.back()->centre[2] - places.front()->centre[2]; }
  double Distance() const {
    double squares = 0;
    for (size_t i = 0; i < 3 && !places.empty(); ++i) {
      const double d = places.back()->centre[i] - places.front()->centre[i];
      squares += d * d;
    }
    return std::sqrt(squares);
  }
};

// Of a patient, seen in each way that the columns ask for.
struct Views {
  Found all;
  std::array<Found, kArteries> by_artery;
  std::array<Moments, 5> bins;    // by density
  std::array<Moments, 3> thirds;  // by depth
};

Views ViewsOf(const Patient& patient) {
  Views views;
  for (const Lesion& lesion : patient.lesions) {
    views.all.Add(lesion, patient);
    views.by_artery[lesion.artery].Add(lesion, patient);
    for (const LesionVoxel& v : lesion.voxels) {
      views.bins[static_cast<size_t>(std::ranges::upper_bound(kLimits, v.hu) - kLimits.begin())].Add(v.hu);
      views.thirds[static_cast<size_t>(std::min(2.0, v.depth * 3))].Add(v.hu);
    }
  }
  for (Found& found : views.by_artery) found.Sort();
  return views;
}

using NamedValues = std::vector<std::pair<std::string, double>>;

void AddArteries(const std::array<Found, kArteries>& by_artery, NamedValues& columns) {
  const auto per_artery = [&](const std::string& prefix, double Found::*value) {
    for (size_t a = 0; a < kArteries; ++a) columns.emplace_back(prefix + kArteryNames[a], by_artery[a].*value);
  };
  per_artery("AgastonScorePerArtery_", &Found::agatston2d);  // the data set's spelling
  per_artery("MassScorePerArtery_", &Found::mass);
  per_artery("VolumeScorePerArtery_", &Found::volume);
  for (size_t a = 0; a < kArteries; ++a) {
    const std::string prefix = std::string("HUperArtery2D_stat_") + kArteryNames[a];
    const Moments& hu = by_artery[a].hu;
    columns.emplace_back(prefix + "2", hu.mean());
    columns.emplace_back(prefix + "3", std::sqrt(hu.variance()));
    columns.emplace_back(prefix + "4", hu.most);
  }
}

void AddThirds(const std::array<Moments, 3>& thirds, NamedValues& columns) {
  const std::array<std::pair<const char*, double (*)(const Moments&)>, 5> moments = {
      {{"first", [](const Moments& m) { return m.n; }},
       {"second", [](const Moments& m) { return m.variance(); }},
       {"mean", [](const Moments& m) { return m.mean(); }},
       {"skewnesst", [](const Moments& m) { return m.skewness(); }},
       {"kurtosis", [](const Moments& m) { return m.kurtosis(); }}}};
  for (const auto& [name, of] : moments) {
    for (size_t third = 0; third < thirds.size(); ++third)
      columns.emplace_back(std::string("IC") + name + "MomentH" + std::to_string(third + 1), of(thirds[third]));
  }
}

// Every column with its value, in the data set's order; the names are those of a patient without lesions.
NamedValues Columns(const Patient& patient) {
  const Views views = ViewsOf(patient);
  const auto& [all, by_artery, bins, thirds] = views;
  NamedValues columns = {{"AgatstonScore2D", all.agatston2d},
                         {"AgatstonScore3D", all.agatston3d},
                         {"MassScore", all.mass},
                         {"VolumeScore", all.volume},
                         {"Area2D", all.area},
                         {"NumLesion3D", all.lesions},
                         {"Age", patient.age},
                         {"numLesionPerArtery3D_LAD1", by_artery[kLad].lesions}};
  AddArteries(by_artery, columns);
  const double voxel = patient.pixel_area * patient.slice_height;
  for (size_t b = 0; b < bins.size(); ++b)
    columns.emplace_back("massHist" + std::to_string(b + 1), bins[b].sum * voxel * kMassOfHu);
  for (size_t b = 0; b < bins.size(); ++b) columns.emplace_back("avrHist" + std::to_string(b + 1), bins[b].mean());
  for (size_t a = 0; a < kArteries; ++a)
    columns.emplace_back(std::string("DistTop2Last_") + kArteryNames[a], by_artery[a].Height());
  for (size_t a = 0; a < kArteries; ++a)
    columns.emplace_back(std::string("DistFirst2Last_") + kArteryNames[a], by_artery[a].Distance());
  AddThirds(thirds, columns);
  const auto calcified = std::ranges::count_if(by_artery, [](const Found& found) { return found.lesions > 0; });
  columns.emplace_back("isAgZero", all.agatston2d == 0 ? 1 : 0);
  columns.emplace_back("isLesion3DBelow5", all.lesions < 5 ? 1 : 0);
  columns.emplace_back("isAgeBelow60", patient.age < 60 ? 1 : 0);
  columns.emplace_back("isFemale", patient.female ? 1 : 0);
  columns.emplace_back("numLesionPerArtery3D_LM1", by_artery[kLm].lesions);
  columns.emplace_back("numLesionPerArtery3D_LCX1", by_artery[kLcx].lesions);
  columns.emplace_back("numArtCalc", static_cast<double>(calcified));
  return columns;
}

}  // namespace

const std::vector<std::string>& FeatureNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [name, value] : Columns({})) all.push_back(name);
    return all;
  }();
  return names;
}

std::vector<double> FeaturesOf(const Patient& patient) {
  std::vector<double> values;
  for (const auto& [name, value] : Columns(patient)) values.push_back(value);
  return values;
}

}  // namespace trainyard::mace
