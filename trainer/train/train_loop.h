// The training of one rank, from the first step of this attempt to the final checkpoint.
#ifndef TRAINYARD_TRAINER_TRAIN_TRAIN_LOOP_H_
#define TRAINYARD_TRAINER_TRAIN_TRAIN_LOOP_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/comm/rank_zero.h"
#include "trainer/train/best_weights.h"
#include "trainer/train/checkpoints.h"
#include "trainer/train/evaluator.h"
#include "trainer/train/inputs.h"
#include "trainer/train/reporter.h"
#include "trainer/train/stages.h"
#include "trainer/train/step.h"

namespace trainyard {

class TrainLoop {
 public:
  // Every rank makes one, with the same resume; `config` is resolved: loads the weights and prints the banner.
  TrainLoop(const Config& config, const Grounds& grounds, StatusPublisher& publisher, std::unique_ptr<Task> task,
            Session session, const Resume& resume);

  // Trains to the end. Throws StoppedError when a stop was requested and everything is durable.
  void Run();
  // A failing rank still helps to complete a checkpoint that is being written: to its end if the others live, who do
  // the same, else for a moment.
  void SettleCheckpoint(bool everyone_lives);
  // What Run has thrown; where another rank has told it, the failure of this rank's own part of a checkpoint, of which
  // the others may hear first. Waits for at most a second.
  std::exception_ptr CauseOf(const std::exception_ptr& error);

 private:
  const StageRun& stage() const { return stages_[static_cast<size_t>(train_.stage)]; }
  bool AtEnd() const { return train_.step >= plan_.total_steps || train_.ended_early; }
  bool EvaluationDue() const;
  void BeginSaving();
  void NextStage();
  StepResult TakeStep();
  void OnNonFinite(const StepResult& result, const std::vector<int64_t>& ids);
  // Whether rank 0 has the last evaluation's results on its disk.
  bool HasResults();
  void Evaluate();
  std::optional<EvaluationResult> EvaluateOrSave(EvaluationKind kind);
  void SaveUnevaluated();
  void RunOneEvaluation(EvaluationKind kind);
  // Engine::ShowAverages, when no checkpoint copies any more.
  void ShowAverages(bool averages);
  void Act(const std::map<std::string, double>& metrics);
  void WriteOrSave(const std::string& what, const TrainState& before, const std::function<void(const Tick&)>& write,
                   const std::function<void()>& help = {});
  void KeepBest(double value, const TrainState& before);
  void ResumeBest(bool saved);
  // Returns when train_ is durable.
  void Save();
  [[noreturn]] void SaveAndStop(bool evaluation_pending);
  void Finish();

  const Config& config_;
  StatusPublisher& publisher_;
  std::unique_ptr<Task> task_;
  Session session_;
  TrainState train_;
  const Decisions decisions_;
  Plan plan_;
  std::vector<StageRun> stages_;
  std::unique_ptr<Engine> engine_;  // of the stage
  PhaseClock clock_;
  BestWeights best_;  // where the stage keeps them
  Checkpoints checkpoints_;
  RankZero rank_zero_;
  std::unique_ptr<Step> step_;  // of the stage
  Reporter reporter_;
  std::unique_ptr<Loader> loader_;
  bool final_done_ = false;
  std::string table_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_TRAIN_LOOP_H_
