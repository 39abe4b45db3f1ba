// log.jsonl: an event per line.
#ifndef TRAINYARD_TRAINER_METRICS_JSON_LINES_H_
#define TRAINYARD_TRAINER_METRICS_JSON_LINES_H_

#include <cstdint>
#include <filesystem>
#include <memory>

#include "trainer/metrics/leading_lines.h"
#include "trainer/metrics/sink_queue.h"

namespace trainyard {

struct JsonLinesOptions {
  std::filesystem::path directory;  // log.jsonl and images/ lie there
  // Steps done before this attempt: what an earlier one logged behind them is done again, so it is
  // cut, with a last line that is not whole.
  int64_t first_step = 0;
  // The evaluation after `first_step` is done again as well.
  bool repeats_evaluation = false;
  AsOwner as_owner = {};
};

// Throws StorageError.
std::unique_ptr<Sink> OpenJsonLines(const JsonLinesOptions& options);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_METRICS_JSON_LINES_H_
