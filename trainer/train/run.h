// `trainyard train`: one rank of a run, from joining the world to the final checkpoint.
#ifndef TRAINYARD_TRAINER_TRAIN_RUN_H_
#define TRAINYARD_TRAINER_TRAIN_RUN_H_

#include <exception>
#include <functional>
#include <string>

#include "trainer/config/config.h"
#include "trainer/train/reporter.h"

namespace trainyard {

struct Endings {
  // Gets what the rank fails with, before that is thrown and before what may wait: for a checkpoint in flight, for the
  // closing of files.
  std::function<void(const std::exception& error)> failing;
  // Called on another thread where the other ranks wait for this one, whose step stands still: gets the verdict, and
  // ends the process.
  std::function<void(const std::string& verdict)> named;
  // Likewise, where the step waits for a device that nothing will wake: gets the collective's failure.
  std::function<void(const std::string& failure)> stuck;
  // All ranks have met, this one among them.
  std::function<void()> joined;
};

// Trains to the end. Throws StoppedError (75) when stopped on request with everything durable, and
// the typed errors of base/error.h. `publisher` exists before and after.
void RunTraining(const Config& config, StatusPublisher& publisher, const Endings& endings);

// Resolves everything, runs one batch forward and backward in a world of one, prints the banner, and
// writes nothing.
void DryRun(const Config& config);

// `trainyard eval`: the thorough evaluation of a checkpoint directory, or of a safetensors export.
void EvaluateCheckpoint(const Config& config, const std::string& path);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_RUN_H_
