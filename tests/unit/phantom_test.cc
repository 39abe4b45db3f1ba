// The made-up cohort: the same bytes everywhere, the event rate that was asked for, features that were counted.
#include "trainer/task/mace_survival/phantom.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "trainer/task/mace_survival/exact_math.h"
#include "trainer/task/mace_survival/follow_up.h"
#include "trainer/task/mace_survival/survival_metrics.h"

namespace trainyard::mace {
namespace {

TEST(ExactMath, AgreesWithTheLibrary) {
  KeyedRandom random(1, "exact");
  for (int i = 0; i < 10000; ++i) {
    const double x = 40 * random.UniformDouble() - 20, e = std::exp(x);
    EXPECT_NEAR(ExactExp(x) / e, 1, 4e-15);  // a few units in the last place, times |x|
    EXPECT_NEAR(ExactLog(e), x, 1e-14 * std::max(1.0, std::abs(x)));
  }
  double sum = 0, squares = 0;
  for (int i = 0; i < 20000; ++i) {
    const double x = ExactNormal(random);
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / 20000, 0, 5 / std::sqrt(20000));  // five standard errors
  EXPECT_NEAR(squares / 20000, 1, 5 * std::sqrt(2.0 / 20000));
}

TEST(FollowUp, HasTheEventRateAndAnOracle) {
  std::vector<Phantom> subjects;
  for (int64_t i = 0; i < 120; ++i) subjects.push_back(MakePhantom({12, 12, 6}, 3, i));
  const FollowUp follow = Follow(subjects, 0.25, 3);
  EXPECT_EQ(std::ranges::count_if(follow.outcomes, &Outcome::event), 30);
  EXPECT_EQ(std::ranges::count(follow.train, 1), 96);
  for (const Outcome& outcome : follow.outcomes) {
    EXPECT_GE(outcome.time, 1);
    EXPECT_LE(outcome.time, 2448);
    EXPECT_EQ(outcome.time, std::floor(outcome.time));
  }
  double sum = 0, squares = 0;
  for (const double risk : follow.log_risk) {
    sum += risk;
    squares += risk * risk;
  }
  EXPECT_NEAR(sum, 0, 1e-9);
  EXPECT_NEAR(squares / 120, 1.25 * 1.25, 1e-9);
  // Simulated for this deviation and event rate: .80 to .84 with 1,950 subjects; 30 events scatter by .04.
  EXPECT_NEAR(*CountPairs(follow.log_risk, follow.outcomes).index(), 0.81, 0.12);
}

TEST(Phantom, IsAFunctionOfSeedAndIndex) {
  const Phantom a = MakePhantom({16, 16, 8}, 5, 3), b = MakePhantom({16, 16, 8}, 5, 3),
                c = MakePhantom({16, 16, 8}, 6, 3);
  EXPECT_EQ(a.image.volume, b.image.volume);
  EXPECT_EQ(a.features, b.features);
  EXPECT_NE(a.image.volume, c.image.volume);
  EXPECT_EQ(FeatureNames().size(), 72u);
  EXPECT_EQ(std::set<std::string>(FeatureNames().begin(), FeatureNames().end()).size(), 72u);
  EXPECT_EQ(a.features.size(), 72u);
}

// Of 60 patients one has two lesions in one place (index 27), and had 38 voxels of 28.
TEST(Phantom, CountsAVoxelOnceWhereLesionsOverlap) {
  const std::array<int64_t, 3> voxels = {64, 64, 32};
  constexpr double kVoxel = (200.0 / 64) * (200.0 / 64) * (120.0 / 32);  // mm^3
  const auto score = std::ranges::find(FeatureNames(), "VolumeScore") - FeatureNames().begin();
  for (int64_t index = 0; index < 60; ++index) {
    const Phantom phantom = MakePhantom(voxels, 42, index);
    int64_t dense = 0;  // voxels of 130 HU or more outside of the spine, a cylinder
    for (int64_t i = 0; i < std::ssize(phantom.image.volume.values); ++i) {
      const double x = (static_cast<double>(i / (64 * 32)) + 0.5) * 200 / 64 - 100,
                   y = (static_cast<double>(i / 32 % 64) + 0.5) * 200 / 64 - 172;
      dense += x * x + y * y >= 18 * 18 && phantom.image.volume.values[static_cast<size_t>(i)] >= 130;
    }
    EXPECT_LE(std::llround(phantom.features[static_cast<size_t>(score)] / kVoxel), dense) << index;
  }
}

TEST(LesionFeatures, AgatstonIsAreaTimesTheWeightOfThePeak) {
  Patient patient{.age = 61, .female = true, .pixel_area = 0.5, .slice_height = 3, .lesions = {}};
  // Two slices: four voxels with a peak of 450 HU (weight 4), two with one of 190 HU (weight 1).
  patient.lesions.push_back({.artery = kLad, .centre = {0, 0, 10}, .voxels = {}});
  for (const double hu : {150.0, 250.0, 450.0, 140.0}) patient.lesions[0].voxels.push_back({5, hu, 0.5});
  for (const double hu : {150.0, 190.0}) patient.lesions[0].voxels.push_back({6, hu, 0.6});
  const std::vector<double> values = FeaturesOf(patient);
  const auto value = [&](const std::string& name) {
    return values[static_cast<size_t>(std::ranges::find(FeatureNames(), name) - FeatureNames().begin())];
  };
  EXPECT_DOUBLE_EQ(value("AgatstonScore2D"), 4 * 0.5 * 4 + 2 * 0.5 * 1);
  EXPECT_DOUBLE_EQ(value("AgatstonScore3D"), 6 * 0.5 * 4);
  EXPECT_DOUBLE_EQ(value("VolumeScore"), 6 * 0.5 * 3);
  EXPECT_DOUBLE_EQ(value("HUperArtery2D_stat_LAD4"), 450);
  EXPECT_DOUBLE_EQ(value("numArtCalc"), 1);
  EXPECT_DOUBLE_EQ(value("isFemale"), 1);
  EXPECT_DOUBLE_EQ(value("isAgZero"), 0);
}

}  // namespace
}  // namespace trainyard::mace
