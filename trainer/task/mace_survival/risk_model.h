// The network of a survival analysis: a 3-D ResNet with a head for the log-risk and, where there is pre-training, one
// for the features of the table.
#ifndef TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_RISK_MODEL_H_
#define TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_RISK_MODEL_H_

#include <ATen/core/Tensor.h>

#include <optional>

#include "trainer/task/mace_survival/cohort.h"
#include "trainer/task/mace_survival/options.h"
#include "trainer/task/mace_survival/resnet3d.h"

namespace trainyard::mace {

struct Predictions {
  at::Tensor risk;      // (B) float32
  at::Tensor features;  // (B, F) float32, scaled; undefined without pre-training
};

// Of one sample on one rank that is gathered for the loss over all: RiskModel::Gather.
struct GatheredRow {
  static constexpr int64_t kRisk = 0, kTime = 1, kTimeRest = 2, kEvent = 3, kPlace = 4, kPresent = 5, kColumns = 6;
};

// Names: MONAI's ResNet with one output, fc included; features (F outputs), and the buffers scaling.mean and
// scaling.deviation (F), which hold what the features were scaled with: 0 until a step was made. Immutable.
class RiskModel {
 public:
  RiskModel(const Scope& s, const Options& options);

  // volumes: (B, 1, X, Y, Z) float32.
  Predictions Forward(const Pass& pass, const at::Tensor& volumes, GlobalBatch& batch) const;
  // Both are the loss's, once a forward: with rows of this rank, or, in pre-training, none.
  at::Tensor Gather(const Pass& pass, const at::Tensor& rows) const { return pass.Gather(gather_, rows); }
  void GatherNothing(const Pass& pass, GlobalBatch& batch) const {
    TakePartInGather(pass, gather_, GatheredRow::kColumns, batch);
  }

  // REQUIRES of the three: pre-training.
  void StageScaling(const Pass& pass, const Scaling& scaling) const;
  at::Tensor mean(const Pass& pass) const { return pass[*mean_]; }
  at::Tensor deviation(const Pass& pass) const { return pass[*deviation_]; }

 private:
  ResNet3d body_;
  Scope heads_;
  Dropout dropout_;
  Linear risk_;
  std::optional<Linear> features_;
  std::optional<BufferId> mean_, deviation_;
  GatherId gather_;
};

}  // namespace trainyard::mace

#endif  // TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_RISK_MODEL_H_
