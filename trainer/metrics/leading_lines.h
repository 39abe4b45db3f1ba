// What stays of a file of lines when a run goes on.
#ifndef TRAINYARD_TRAINER_METRICS_LEADING_LINES_H_
#define TRAINYARD_TRAINER_METRICS_LEADING_LINES_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "trainer/base/input_file.h"

namespace trainyard {

// Whether a line stays; the first that does not ends them. Nothing: it cannot be read. It stays where one that does is
// behind it, for a damaged byte must not take with it what was written after.
using Stays = std::function<std::optional<bool>(const std::string& line)>;

// The length of the leading lines that are whole and that stay. Throws StorageError when the file cannot be read up to
// there: what could not be seen must not be cut. `tick`, if any, is called for each MiB.
uint64_t LeadingLines(const InputFile& file, const Stays& stays, const Tick& tick = {});

// Makes a change only while the run is the caller's own, or throws. Empty: nobody else may have it.
using AsOwner = std::function<void(const std::function<void()>& change)>;

// Puts a file of those lines alone into its place: what an older attempt, which has the one before open and is still
// alive, adds to that is not in this one. Where all of them stay and there is no room for another file, the old one
// does. Throws StorageError, or what `as_owner` throws; then nothing was changed.
void KeepLeadingLines(const std::filesystem::path& path, const Stays& stays, const AsOwner& as_owner = {},
                      const Tick& tick = {});

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_METRICS_LEADING_LINES_H_
