#include "trainer/train/evaluator.h"

#include "trainer/base/stop_signal.h"
#include "trainer/base/text.h"
#include "trainer/comm/fail_together.h"

namespace trainyard {

nlohmann::json EvaluationResult::Numbers() const {
  nlohmann::json curves = nlohmann::json::object();
  for (const EventContent& artifact : artifacts) {
    if (const auto* curve = std::get_if<Curve>(&artifact)) curves[curve->tag] = {{"x", curve->x}, {"y", curve->y}};
  }
  return {{"metrics", metrics}, {"curves", curves}};
}

bool AgreeOnStop(ControlPlane& control, const std::string& where) {
  double stop = StopRequested() ? 1 : 0;
  control.AllReduceNow(std::span(&stop, 1), where);
  return stop > 0;
}

namespace {

std::exception_ptr RunChunk(Evaluation& evaluation, int chunk, Weights& weights) {
  std::exception_ptr error;
  try {
    evaluation.RunChunk(chunk);
  } catch (...) {
    error = std::current_exception();
  }
  try {
    weights.EndForwards();
  } catch (...) {
    if (!error) error = std::current_exception();
  }
  return error;
}

// What `make` returns, or every rank fails.
template <class Make>
auto MakeTogether(ControlPlane& control, const std::string& what, const Make& make) {
  std::optional<decltype(make())> made;
  std::exception_ptr error;
  try {
    made.emplace(make());
  } catch (...) {
    error = std::current_exception();
  }
  FailTogether(control, error, what);
  return std::move(*made);
}

}  // namespace

std::optional<EvaluationResult> RunEvaluation(const Task& task, EvaluationKind kind, int64_t step, Weights& weights,
                                              ControlPlane& control, const std::function<void(int, int)>& progress) {
  const std::string what = Format("the evaluation after step %lld", static_cast<long long>(step));
  const std::unique_ptr<Evaluation> evaluation =
      MakeTogether(control, what, [&] { return task.Evaluate(kind, step, weights, control.rank(), control.size()); });
  const int chunks = evaluation->num_chunks();
  progress(0, chunks);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const std::exception_ptr error = RunChunk(*evaluation, chunk, weights);
    FailTogether(control, error, what);
    progress(chunk + 1, chunks);
    if (AgreeOnStop(control, Format("evaluation chunk %d", chunk))) return std::nullopt;
  }
  control.AllReduceNow(evaluation->slots(), "evaluation results");
  return MakeTogether(control, what, [&] {
    return EvaluationResult{evaluation->Metrics(), evaluation->Artifacts(), evaluation->Table()};
  });
}

}  // namespace trainyard
