// One optimizer step.
#ifndef TRAINYARD_TRAINER_TRAIN_STEP_H_
#define TRAINYARD_TRAINER_TRAIN_STEP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trainer/checkpoint/writer.h"
#include "trainer/comm/control_plane.h"
#include "trainer/comm/flight_recorder.h"
#include "trainer/data/loader.h"
#include "trainer/parallel/engine.h"
#include "trainer/task/task.h"
#include "trainer/train/plan.h"
#include "trainer/train/train_state.h"

namespace trainyard {

struct StepResult {
  double loss = 0;       // global
  double grad_norm = 0;  // global, before clipping
  double lr = 0;
  double overlap = 0;           // Engine::overlap, this rank's
  bool finite = true;           // else the optimizer left everything as it was
  double loss_scale = 1;        // what the loss was multiplied by
  bool overflow = false;        // not finite, for which the loss scale may have been too large: it was lowered
  bool stop = false;            // some rank was asked to stop
  bool save = false;            // some rank wanted to save
  std::vector<double> metrics;  // global, Task::train_metrics
};

// The time of the step thread, by phase, since the start.
class PhaseClock {
 public:
  // Phases are also noted in `recorder`, where there is one.
  explicit PhaseClock(FlightRecorder* recorder = nullptr) : recorder_(recorder) {}
  void Enter(const std::string& phase);
  const std::map<std::string, double>& seconds() const { return seconds_; }

 private:
  FlightRecorder* const recorder_;
  std::string phase_;
  double since_ = 0;
  std::map<std::string, double> seconds_;
};

// The collectives of a step are the same on every rank and in every step: denominators, the engine's,
// consensus. A rank whose data, forward or backward fails takes part in all that are left and then
// tells the others in the consensus, so an error on one rank never leaves another waiting.
class Step {
 public:
  Step(const Config& config, const Plan& plan, const Task& task, Engine& engine, ControlPlane& control,
       PhaseClock& clock);

  // Runs the step after `train.step` steps and advances `train`. `fetch` delivers this rank's share,
  // which must stay until Run returns, and may throw. `wants_save` is this rank's wish, on which all agree.
  // On CPU the result is complete on return. Throws this rank's own error (OutOfMemoryError with what to change for an
  // allocation of forward or backward that failed, std::logic_error that names task and field for a result which is not
  // what Task promises), or PeerError naming the rank that failed; `train` and the parameters are then unchanged.
  StepResult Run(const std::function<const Share&()>& fetch, TrainState& train, CheckpointWriter* writer,
                 bool wants_save = false);

 private:
  // What this rank knows before the consensus.
  struct Local {
    double loss_scale = 1;
    std::vector<LossResult> losses;  // per micro-batch, without their graphs
    bool wants_save = false;
    std::exception_ptr error;
  };
  // Phases 2 to 4. Throws DataError, on every rank, when no rank could read a sample.
  StepResult ComputeTogether(const Share& share, int64_t step, Local& local);
  std::vector<double> Denominators(const Share& share, bool failed);
  void ForwardBackward(const Share& share, const std::vector<double>& denominators, int64_t step, Local& local);
  // That of this step; 1 with a precision that needs none.
  LossScale ScaleOf(const TrainState& train) const;
  StepResult Agree(Local& local);
  void Update(TrainState& train, StepResult& result, CheckpointWriter* writer);

  const Config& config_;
  const Plan& plan_;
  const Task& task_;
  Engine& engine_;
  ControlPlane& control_;
  PhaseClock& clock_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_STEP_H_
