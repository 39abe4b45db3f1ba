// What a power loss would leave of a directory, at any moment of a test.
//
// power_loss.cc takes the place of the C library's open, mkdir, rename, unlink, fsync, flock and others in
// the test's process, and writes down what they do below one directory. From that log a moment can be
// rebuilt as the strictest file system would leave it: of a file what was there at its last fsync, of
// a directory's entries those at its last fsync, and of the changes since then any set that the test asks for.
// An fsync can be left out: it is then neither done nor written down.
#ifndef TRAINYARD_TESTS_UNIT_POWER_LOSS_H_
#define TRAINYARD_TESTS_UNIT_POWER_LOSS_H_

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace trainyard::power_loss {

struct Event {
  enum Kind { kCreate, kMakeDirectory, kRename, kRemove, kSyncFile, kSyncDirectory, kAnnounce } kind;
  std::string path;     // below the directory, absolute; for kAnnounce the text
  std::string other;    // kRename: the new name
  std::string content;  // kSyncFile
};

// Writes down what happens below `root`, which exists and is empty, until Stop. No real fsync is done.
// The fsync number `leave_out`, counted from 0, is left out; -1: none.
void Start(const std::filesystem::path& root, int leave_out);
std::vector<Event> Stop();
// How many there were, the one that was left out included.
int Syncs();
// The next so many calls of flock fail with `error`.
void FailLocks(int error, int calls);
// Notes in the log that the test was told something.
void Announce(const std::string& text);

// A directory's content: path below it -> content; a path that ends with "/" is an empty directory.
using Tree = std::map<std::string, std::string>;

// Calls `check` with what may be left after the first `moment` events: with none of the changes of
// entries that were not synced, with all, with each one alone, and with all but one.
void ForEachRemainder(const std::vector<Event>& log, size_t moment, const std::filesystem::path& root,
                      const std::function<void(const Tree&)>& check);
// Makes it real, in place of whatever `directory` holds.
void Materialise(const Tree& tree, const std::filesystem::path& directory);

}  // namespace trainyard::power_loss

#endif  // TRAINYARD_TESTS_UNIT_POWER_LOSS_H_
