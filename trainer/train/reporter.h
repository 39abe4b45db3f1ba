// Tells people and machines how training goes: progress line, log, TensorBoard, record, status.
#ifndef TRAINYARD_TRAINER_TRAIN_REPORTER_H_
#define TRAINYARD_TRAINER_TRAIN_REPORTER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trainer/base/progress.h"
#include "trainer/launch/report_channel.h"
#include "trainer/metrics/record.h"
#include "trainer/metrics/status.h"
#include "trainer/metrics/status_server.h"
#include "trainer/metrics/telemetry.h"
#include "trainer/metrics/throughput.h"
#include "trainer/train/evaluator.h"
#include "trainer/train/inputs.h"
#include "trainer/train/plan.h"
#include "trainer/train/session.h"
#include "trainer/train/step.h"

namespace trainyard {

// The part that exists before anything else does: publishes the status twice a second, and within a twentieth of one
// where there is a first step, a checkpoint or another phase, through the launcher or, on local rank 0 without one, on
// a port of its own.
class StatusPublisher {
 public:
  explicit StatusPublisher(bool serve);
  ~StatusPublisher();
  StatusBoard& board() { return board_; }
  ReportChannel& channel() { return channel_; }
  int port() const { return server_ ? server_->port() : 0; }  // 0: the launcher serves

 private:
  StatusBoard board_;
  ReportChannel channel_;
  std::unique_ptr<StatusServer> server_;
  RankStatus Now() const;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

class Reporter {
 public:
  // Rank 0 opens the logs; other ranks only keep their status.
  Reporter(const Config& config, const Plan& plan, const Task& task, const Session& session, StatusPublisher& publisher,
           const TrainState& train);
  // Waits for the logs, at most until their closing deadlines, and says what was lost.
  ~Reporter();

  // On rank 0, where records(): cuts what is done again from the record, which is read whole for that, and goes on with
  // it. Record's errors.
  void OpenRecord(int64_t step, const Tick& tick);
  // After a step. `inputs`: when recording (else empty).
  void ReportStep(const TrainState& train, const StepResult& result, const GatheredInputs& inputs,
                  const PhaseClock& clock, const LoaderTimes& loader, const CheckpointWriter& writer);
  // The newest durable checkpoint, for the status and the termination message.
  void ReportCheckpoint(const CheckpointWriter& writer);
  void ReportEvaluation(int64_t step, const EvaluationResult& result);
  // Training has come to its end.
  void ReportComplete(int64_t step);
  // Training goes on behind `done` steps; until the first one is reported it is said that it runs.
  void AwaitFirstStep(int64_t done);
  // Of an evaluation, which begins with done == 0.
  void EvaluationProgress(int done, int total);
  // A line for people, on rank 0.
  void Say(const std::string& text);
  // A warning, on any rank; it stands in the status as well.
  void Warn(const std::string& text);
  bool records() const { return records_; }

 private:
  struct Speed {
    std::optional<double> samples, tokens;  // a second, of all ranks
    std::optional<double> mfu;
  };
  Speed SpeedNow() const;
  void OpenSinks(const Config& config, const TrainState& train, const AsOwner& as_owner);
  std::optional<double> Remaining(int64_t step, const PhaseClock& clock) const;

  const Config& config_;
  const Plan& plan_;
  std::vector<std::string> metric_names_;
  SampleWork work_;
  int64_t attempt_;
  bool leader_, records_;
  StatusBoard& board_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<Progress> evaluation_progress_;  // while there is one
  std::chrono::steady_clock::time_point evaluation_began_;
  std::unique_ptr<Telemetry> telemetry_;
  AsOwner as_owner_;
  std::unique_ptr<Record> record_;
  Throughput throughput_;
  int64_t evaluations_ = 0;  // of this attempt
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_REPORTER_H_
