// Who may write into a checkpoint directory, and whose steps may be read.
//
// The file `fence` lists the owners in the order they came. Only the last one commits. A step is
// readable if its writer is listed, the step is above what that owner resumed from, and not above
// what any later owner resumed from. So whatever an old attempt on a lost node still writes can
// never be resumed from.
#ifndef TRAINYARD_TRAINER_CHECKPOINT_FENCE_H_
#define TRAINYARD_TRAINER_CHECKPOINT_FENCE_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trainer/checkpoint/manifest.h"

namespace trainyard {

struct Fence {
  struct Owner {
    Writer writer;
    int64_t resumed_step = 0;  // 0: started from scratch
  };
  std::vector<Owner> owners;

  bool Readable(const Writer& writer, int64_t step) const;
  bool IsLast(const Writer& writer) const { return !owners.empty() && owners.back().writer == writer; }
  // The highest attempt listed under a uid; 0 when there is none.
  int64_t LastAttempt(const std::string& job_uid) const;

  // No file is an empty fence. Throws StorageError for a file that is not one.
  static Fence Read(const std::filesystem::path& directory);
  // Appends an owner and replaces the file. Throws PeerError when the same uid is already there
  // with this attempt or a later one: a newer attempt owns the directory.
  static void Take(const std::filesystem::path& directory, const Writer& writer, int64_t resumed_step);
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_CHECKPOINT_FENCE_H_
