#include "trainer/train/consequences.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "trainer/config/load.h"

namespace trainyard {

Consequences ActOn(const std::map<std::string, double>& metrics, const Config& config, const Stage& stage, bool last,
                   TrainState& train) {
  const std::vector<Metric> declared = config.task.options->Metrics();
  const auto badness = [&](const std::string& name) {
    const auto value = metrics.find(name);
    if (value == metrics.end())
      throw std::logic_error("the evaluation does not give " + name + ", which the task declares");
    return Badness(declared, name, value->second);
  };
  Consequences consequences;
  if (config.schedule.name == "plateau" && stage.Counts(config.schedule.metric))
    train.plateau.Update(config.schedule, badness(config.schedule.metric));
  if (const std::string& best = config.checkpoint.keep_best;
      !best.empty() && stage.Counts(best) && badness(best) < train.best) {
    train.best = badness(best);
    train.best_step = train.step;
    consequences.new_best = true;
  }
  const EarlyStopConfig& early = config.train.early_stop;
  if (!early.metric.empty() && stage.Counts(early.metric) && !last)
    consequences.stop_early = train.early_stop.Update(early, badness(early.metric));
  return consequences;
}

void ForgetOtherRules(const nlohmann::json& saved, const Config& now, TrainState& train) {
  using Json = nlohmann::json;
  const Json mine = ToJson(now);
  const auto differs = [&](const std::string& field) {
    const Json::json_pointer at(field);
    return saved.contains(at) && saved.at(at) != mine.at(at);
  };
  const bool measured_otherwise = std::ranges::any_of(now.task.options->MeasuredWith(), [&](std::string field) {
    std::ranges::replace(field, '.', '/');
    return differs("/" + field);
  });
  if (differs("/checkpoint/keep_best") || measured_otherwise) train.ForgetBest();
  if (differs("/schedule/metric") || measured_otherwise) train.plateau = {.multiplier = train.plateau.multiplier};
  // What has ended stays so: whoever asks for more patients at the end wants them evaluated, and no more steps.
  if (differs("/train/early_stop/metric") || (measured_otherwise && !train.ended_early)) train.early_stop = {};
  if (differs("/train/early_stop/min_delta")) train.early_stop.bad = 0;
  if (!train.ended_early || train.early_stop.bad >= now.train.early_stop.patience) return;
  train.ended_early = false;
  train.evaluation_pending = false;  // a final one; the periodic one has been acted upon
}

}  // namespace trainyard
