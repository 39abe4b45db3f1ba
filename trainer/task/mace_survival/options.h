// What a configuration says about the survival analysis alone.
#ifndef TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_OPTIONS_H_
#define TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_OPTIONS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/cache_fields.h"
#include "trainer/config/config.h"

namespace trainyard::mace {

// A field that is absent has the preset's value.
struct ModelOptions {
  std::string preset = "tiny";  // tiny | small | full
  std::string resnet = "auto";  // auto | resnet10 | resnet18 | resnet34 | resnet50
  OptionalInt width, first_stride;
  int64_t features = 72;
  double dropout = 0;
};

// Everything that determines network and volumes.
struct ModelShape {
  int64_t layers, width, first_stride;
  std::vector<int64_t> volume;  // voxels along x, y, z
};

// What evaluations measure: of the risk, and of pre-training.
inline constexpr char kConcordance[] = "Val/Cindex", kRiskLoss[] = "Val/Loss", kFeatureLoss[] = "Val/FeatureLoss";

struct Options : TaskOptions {
  ModelOptions model;
  int64_t pretrain_epochs = 0;
  int64_t freeze_epochs = 0;
  std::optional<double> event_fraction;
  std::vector<int64_t> volume;  // empty: the preset's
  bool augment = true;
  std::vector<double> window = {-1000, 1000};  // Hounsfield units that become 0 and 1
  std::string image_column = "NIFTI Path";
  std::string fold_column = "Fold_1";
  CacheConfig cache;

  void Declare(FieldTable& table) override;
  void Check(const Config& config) const override;
  std::string Describe() const override;
  std::vector<Metric> Metrics() const override;
  const char* NotDeterministicOnGpu() const override { return "max_pool3d"; }

  ModelShape shape() const;
  bool pretrains() const { return pretrain_epochs > 0; }
  // All epochs of the run are pre-training's.
  bool only_pretrains(const Config& config) const {
    return pretrains() && freeze_epochs == 0 && config.train.epochs && *config.train.epochs == pretrain_epochs;
  }
};

std::shared_ptr<TaskOptions> MakeOptions();

// REQUIRES: `config` was loaded for this task.
const Options& OptionsOf(const Config& config);

}  // namespace trainyard::mace

#endif  // TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_OPTIONS_H_
