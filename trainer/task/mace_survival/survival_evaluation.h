// What a survival analysis measures on subjects that it was not trained on.
#ifndef TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_SURVIVAL_EVALUATION_H_
#define TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_SURVIVAL_EVALUATION_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/task/mace_survival/cohort.h"
#include "trainer/task/mace_survival/risk_model.h"
#include "trainer/task/task.h"

namespace trainyard::mace {

struct EvaluationSetup {
  const RiskModel& model;
  Weights& weights;
  const Cohort& cohort;
  const Dataset& volumes;            // val's subjects, then train's
  const std::vector<int64_t>& size;  // of a volume
  const std::map<std::string, double>& truth;
  const Scaling& scaling;  // where the weights hold none
  bool final;
  bool only_pretrains;  // the run: then nothing has trained the risk
  bool skip_bad;        // faults.bad_sample: what cannot be read of the training fold is left out
  OptionalInt threads;  // that read volumes; absent: as many as there are processors, at most four
  int rank, world;
};

// Each subject's risk is predicted once, by one rank, and everything is computed from all of them together: the same
// bits for every world size. Val/Cindex, Val/Loss (Cox, per event), Val/tAUC@{1..5}y where there are cases and
// controls, Val/FeatureLoss with pre-training. A final one predicts the training fold as well, for Breslow's baseline
// hazard: Train/Cindex, Val/Brier@{1..5}y and Val/IBS over those years; with a truth Val/Cindex_oracle. Censoring is
// the training fold's. Artifacts: survival by thirds of the predicted risk (Kaplan and Meier), as curves and as a
// picture.
std::unique_ptr<Evaluation> MakeSurvivalEvaluation(const EvaluationSetup& setup);

}  // namespace trainyard::mace

#endif  // TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_SURVIVAL_EVALUATION_H_
