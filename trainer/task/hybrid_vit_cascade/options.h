// What a configuration says about the cascade alone.
#ifndef TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_OPTIONS_H_
#define TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_OPTIONS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/config.h"

namespace trainyard::hvc {

constexpr int64_t kMaxStages = 3;
constexpr int64_t kMinSize = 11;  // what an evaluation measures the SSIM in (image_metrics.h)

// One network of the cascade: a diffusion model of volumes of size^3 voxels.
struct StageShape {
  int64_t size, dim, depth, heads;
};

enum class Head {
  kUpsample,  // a number for each token, interpolated
  kPatch,     // each token gives the voxels that it stands for
};

enum class Context {
  kMean,   // the mean of both X-rays' features, without places
  kViews,  // the features of each, with their places
};

// How the diffusion loss weighs times.
enum class Weighting {
  kVelocity,  // error of v
  kEven,      // as a share of CascadeModel::Uncertainty
};

// Everything that determines the networks.
struct ModelShape {
  std::vector<StageShape> stages;
  int64_t token_grid;  // tokens are token_grid^3 in every stage
  int64_t xray_size;   // pixels of a side
  int64_t xray_dim;    // channels of the encoded X-rays
  Head head;
  Context context;
  double mean, deviation, detail;  // cascade_model.h, Expectation
  double dropout;
};

// How voxels become values of [-1, 1], and what was done to make the X-rays.
struct IntensityMap {
  double hu_low = -1000, hu_high = 3000;
  double mu_water = 0.02;  // attenuation of water, 1/mm
  double drr_window = 6;   // the line integral that is white

  // How far below -1, which is hu_low, a volume's values have no attenuation: at -1000 HU.
  double air() const { return 2 * (hu_low + 1000) / (hu_high - hu_low); }
};

struct Options : TaskOptions {
  struct StageOptions {
    OptionalInt steps, size, dim, depth, heads;
    double physics = 0;
  };
  std::string preset = "tiny";  // tiny | small | full
  OptionalInt stages, token_grid, xray_size, xray_dim;
  std::string head = "auto";     // auto | upsample | patch
  std::string context = "auto";  // auto | mean | views
  double mean = -0.85, deviation = 0.25;
  std::optional<double> detail, dropout;
  std::array<StageOptions, kMaxStages> stage;

  int64_t first_stage = 1;
  bool from_best = true;
  int64_t timesteps = 1000, sampling_steps = 50;
  double previous_noise = 0.05;
  std::string weighting = "auto";  // auto | velocity | even
  OptionalInt eval_patients;
  int64_t eval_samples = 2;

  IntensityMap intensity;
  bool augment = false, flip_xrays = false;
  double val_fraction = 0.1, test_fraction = 0.1;
  int64_t split_seed = 42;
  int64_t cache_mib = 1024;

  Options();
  void Declare(FieldTable& table) override;
  void Check(const Config& config) const override;
  std::string Describe() const override;
  std::vector<Metric> Metrics() const override;
  std::vector<std::string> MeasuredWith() const override {
    return {"task.eval_patients", "task.eval_samples", "task.sampling_steps"};
  }
  const char* NotDeterministicOnGpu() const override { return "upsample_trilinear3d"; }

  ModelShape shape() const;
  Weighting times() const;
  // Steps of each stage from first_stage on. REQUIRES: train.steps is set.
  std::vector<int64_t> StageSteps(const Config& config) const;
};

std::shared_ptr<TaskOptions> MakeOptions();

// REQUIRES: `config` was loaded for this task.
const Options& OptionsOf(const Config& config);

}  // namespace trainyard::hvc

#endif  // TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_OPTIONS_H_
