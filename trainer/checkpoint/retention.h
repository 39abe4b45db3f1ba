// Which steps stay in a checkpoint directory.
#ifndef TRAINYARD_TRAINER_CHECKPOINT_RETENTION_H_
#define TRAINYARD_TRAINER_CHECKPOINT_RETENTION_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "trainer/checkpoint/fence.h"

namespace trainyard {

struct Retention {
  int64_t keep_last = 2;   // readable steps
  int64_t keep_every = 0;  // and those divisible by this; 0: none
};

struct StuckFolder {
  std::filesystem::path path;
  std::error_code error;
};

// Copies of steps that were moved aside (step-N.bad-<tag>) and stay: the newest ones.
inline constexpr size_t kAsideKept = 2;

// "<16 digits>-<attempt>", by which the folders of an attempt are told apart from those of every other one: the digits
// are of the whole uid, which anybody may choose and which may begin like another one.
std::string TagOf(const Writer& writer);

// The folders that were moved aside, the newest first.
std::vector<std::filesystem::path> ListAside(const std::filesystem::path& directory);

// After `owner`, the last of `fence`, has committed the step `committed`: steps that cannot be gone
// on from any more are moved aside, and what exceeds the rules gets the name of an unfinished step,
// step-N.tmp-<tag>-old. Renames only; returns what the caller removes. Steps that no fence lists are
// moved aside above `committed`, since this run did not go on from them, and left alone below. One that cannot be
// renamed stays; `stuck` is then the first of them, with the system's reason.
// `kept`, empty at first: the steps that this owner has found readable and kept. Of those that keep_every keeps behind
// the newest, the manifests are not read again, so the fence's lock is not held the longer the more there are.
std::vector<std::filesystem::path> Retain(const std::filesystem::path& directory, const Fence& fence,
                                          const Writer& owner, int64_t committed, const Retention& rules,
                                          std::set<int64_t>& kept, std::optional<StuckFolder>& stuck);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_CHECKPOINT_RETENTION_H_
