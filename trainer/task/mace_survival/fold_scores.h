// What predicted risks of a fold are worth, and how that is shown. Plain numbers.
#ifndef TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_FOLD_SCORES_H_
#define TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_FOLD_SCORES_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trainer/metrics/event.h"
#include "trainer/task/mace_survival/cohort.h"

namespace trainyard::mace {

// Of the val fold, unless it says otherwise. By years: those within both folds' follow-up, of the first five.
struct FoldScores {
  double concordance = 0;
  double loss = 0;  // negative log partial likelihood per event
  std::map<int, double> auc, brier;
  std::optional<double> integrated_brier, train_concordance;
  std::optional<double> oracle;  // concordance of the true log-risk
  StepFunction baseline;         // of the training fold
};

// Of those of the training fold whose volumes could be read.
struct TrainingRisks {
  std::vector<double> risks;
  std::vector<Outcome> outcomes;
};

// `train` may be empty: then there is no baseline, and nothing that needs one. Risks that are no numbers make scores
// that are none. Censoring is that of the whole training fold.
FoldScores ScoreFolds(const std::vector<double>& val, const TrainingRisks& train, const Cohort& cohort,
                      const std::map<std::string, double>& truth);

struct RiskGroup {
  std::string name;  // low, middle, high
  StepFunction survival;
};
// Kaplan and Meier's estimates by thirds of the risk; none where a risk is no number, for then there is no order.
std::vector<RiskGroup> ByThirds(const std::vector<double>& risk, const std::vector<Subject>& subjects);

// In years, from 0 on.
Curve AsCurve(const std::string& tag, const StepFunction& function);
// Survival from 0 to 1 over the years, a grid line each: the low risk green, the middle one orange, the high one red.
Image PlotSurvival(const std::string& tag, const std::vector<RiskGroup>& groups);

std::string TableOf(const FoldScores& scores, const Cohort& cohort);

}  // namespace trainyard::mace

#endif  // TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_FOLD_SCORES_H_
