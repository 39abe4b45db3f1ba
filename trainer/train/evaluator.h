// Runs evaluations over all ranks; consequences.h draws the consequences.
#ifndef TRAINYARD_TRAINER_TRAIN_EVALUATOR_H_
#define TRAINYARD_TRAINER_TRAIN_EVALUATOR_H_

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "trainer/comm/control_plane.h"
#include "trainer/task/task.h"

namespace trainyard {

struct EvaluationResult {
  std::map<std::string, double> metrics;
  std::vector<EventContent> artifacts;
  std::string table;

  // {metrics, curves: {tag: {x, y}}}
  nlohmann::json Numbers() const;
};

// All ranks call it together. After each chunk the ranks agree whether one of them was asked to
// stop; then nothing is returned. An error on one rank is thrown there, and as PeerError elsewhere.
// `progress(done, total)` is called at the start, with 0 done, and after each chunk.
std::optional<EvaluationResult> RunEvaluation(const Task& task, EvaluationKind kind, int64_t step, Weights& weights,
                                              ControlPlane& control, const std::function<void(int, int)>& progress);

// True as soon as one rank was asked to stop: a point that all ranks pass in the same order.
bool AgreeOnStop(ControlPlane& control, const std::string& where);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_EVALUATOR_H_
