// For test_survival.py: reads sets of subjects, a JSON object a line, and prints what trainer/task/mace_survival makes
// of each: {risk, time, event, train: {risk, time, event}, survival: [at][subject], at: [times]}.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "trainer/task/mace_survival/survival_metrics.h"

namespace trainyard::mace {
namespace {

using nlohmann::json;

std::vector<Outcome> OutcomesIn(const json& set) {
  std::vector<Outcome> outcomes;
  for (size_t i = 0; i < set["time"].size(); ++i) outcomes.push_back({set["time"][i], set["event"][i].get<int>() == 1});
  return outcomes;
}

json OrNull(const std::optional<double>& value) { return value ? json(*value) : json(); }

json Numbers(const json& set) {
  const auto risk = set["risk"].get<std::vector<double>>(), at = set["at"].get<std::vector<double>>();
  const std::vector<Outcome> outcomes = OutcomesIn(set), train = OutcomesIn(set["train"]);
  const CoxLoss cox = CoxPartialLikelihood(risk, outcomes);
  const Concordance pairs = CountPairs(risk, outcomes);
  const StepFunction censoring = CensoringDistribution(train);
  const StepFunction baseline = BreslowBaseline(set["train"]["risk"].get<std::vector<double>>(), train);
  json auc = json::array(), brier = json::array(), hazard = json::array(), survival = json::array();
  std::vector<double> briers;
  for (size_t i = 0; i < at.size(); ++i) {
    auc.push_back(OrNull(TimeDependentAuc(risk, outcomes, censoring, at[i])));
    briers.push_back(*BrierScore(set["survival"][i].get<std::vector<double>>(), outcomes, censoring, at[i]));
    brier.push_back(briers.back());
    hazard.push_back(baseline.At(at[i]));
    survival.push_back(KaplanMeier(outcomes).At(at[i]));
  }
  return {{"cox", cox.sum},
          {"gradient", cox.gradient},
          {"cindex", OrNull(pairs.index())},
          {"pairs", {pairs.comparable, pairs.concordant, pairs.tied}},
          {"auc", auc},
          {"brier", brier},
          {"ibs", IntegratedScore(at, briers)},
          {"hazard", hazard},
          {"kaplan_meier", survival}};
}

}  // namespace
}  // namespace trainyard::mace

int main() {
  for (std::string line; std::getline(std::cin, line);)
    std::cout << trainyard::mace::Numbers(nlohmann::json::parse(line)).dump() << "\n";
}
