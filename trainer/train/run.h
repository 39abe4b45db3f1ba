// `trainyard train`: one rank of a run, from joining the world to the final checkpoint.
#ifndef TRAINYARD_TRAINER_TRAIN_RUN_H_
#define TRAINYARD_TRAINER_TRAIN_RUN_H_

#include <functional>
#include <string>

#include "trainer/config/config.h"
#include "trainer/train/reporter.h"

namespace trainyard {

// Trains to the end. Throws StoppedError (75) when stopped on request with everything durable, and
// the typed errors of base/error.h. `publisher` exists before and after. `named` is called, on another thread, where
// the other ranks wait for this one, whose step stands still: it gets the verdict, and ends the process.
void RunTraining(const Config& config, StatusPublisher& publisher,
                 const std::function<void(const std::string& verdict)>& named);

// Resolves everything, runs one batch forward and backward in a world of one, prints the banner, and
// writes nothing.
void DryRun(const Config& config);

// `trainyard eval`: the thorough evaluation of a checkpoint directory, or of a safetensors export.
void EvaluateCheckpoint(const Config& config, const std::string& path);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_RUN_H_
