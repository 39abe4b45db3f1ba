// What a worker says of its own end: trainyard launch's termination message (docs/formats.md), or the
// last lines of any other image's output.
#ifndef TRAINYARD_OPERATOR_RECONCILE_LAST_WORDS_H_
#define TRAINYARD_OPERATOR_RECONCILE_LAST_WORDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainyard::reconcile {

struct LastWords {
  bool from_launcher = false;   // else every field but message and tail is empty
  std::optional<int64_t> rank;  // the culprit's
  std::string reason;           // as one word; empty when unknown
  std::string message;          // of any other image: its last line
  std::optional<int64_t> step, checkpoint_step;
  std::vector<std::string> tail;  // at most 20 lines
};

// Reads the termination message of a container. Never fails: any image may write anything.
LastWords ReadLastWords(const std::string& termination_message);

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_LAST_WORDS_H_
