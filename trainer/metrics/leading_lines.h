// What stays of a file of lines when a run goes on.
#ifndef TRAINYARD_TRAINER_METRICS_LEADING_LINES_H_
#define TRAINYARD_TRAINER_METRICS_LEADING_LINES_H_

#include <cstdint>
#include <functional>
#include <string>

#include "trainer/base/input_file.h"

namespace trainyard {

// The length of the leading lines that are whole and that `stays` takes. Throws StorageError when the file cannot be
// read up to there: what could not be seen must not be cut.
uint64_t LeadingLines(const InputFile& file, const std::function<bool(const std::string& line)>& stays);

// Cuts what is behind them. Throws StorageError; then nothing was changed.
void KeepLeadingLines(const std::filesystem::path& path, const std::function<bool(const std::string& line)>& stays);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_METRICS_LEADING_LINES_H_
