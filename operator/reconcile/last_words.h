// What a worker says of its own end: trainyard launch's termination message (docs/formats.md), or the
// last lines of any other image's output.
#ifndef TRAINYARD_OPERATOR_RECONCILE_LAST_WORDS_H_
#define TRAINYARD_OPERATOR_RECONCILE_LAST_WORDS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "operator/api/training_job.h"

namespace trainyard::reconcile {

struct LastWords {
  bool from_launcher = false;   // else every field but message and tail is empty
  std::optional<int64_t> rank;  // the culprit's
  std::string reason;           // as one word; empty when unknown
  std::string message;          // in one line; of any other image: its last one
  std::optional<int64_t> step, checkpoint_step;
  api::Startup startup;           // of the pod's first rank: as ReadStartup
  std::vector<std::string> tail;  // at most 20 lines
};

// Reads the termination message of a container. Never fails: any image may write anything.
LastWords ReadLastWords(const std::string& termination_message);

// What a trainer's `startup` says, in its last words and in /status: how long its ranks took to meet and to do the
// first step, and where it went on from. Nothing for what cannot be one.
api::Startup ReadStartup(const nlohmann::json& told);

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_LAST_WORDS_H_
