// Who may write into a checkpoint directory, and whose steps may be read.
//
// The file `fence` lists the owners in the order they came. A new one appends itself before it looks
// at any step (Take), chooses what to go on from, and then says so (Record). Only the last owner
// commits or removes anything. A step is readable if its writer is listed, the step is above what
// that owner resumed from, and not above what any later owner resumed from. An owner that has not
// recorded yet has written nothing and changes no step's standing. So whatever an old attempt on a
// lost node still writes can never be resumed from.
#ifndef TRAINYARD_TRAINER_CHECKPOINT_FENCE_H_
#define TRAINYARD_TRAINER_CHECKPOINT_FENCE_H_

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/manifest.h"

namespace trainyard {

enum class Standing {
  kReadable,
  kFencedOff,  // listed, but a later owner did not go on from it: it is passed over
  kUnlisted,   // no owner that could have written it: the fence is lost, or the step was copied here
};

// What helps when a fence is lost or damaged.
inline constexpr const char* kLostFenceRemedy =
    "To go on, move `fence` away if it is there and name the step in checkpoint.resume (<directory>/step-<N>); "
    "to start afresh, name another checkpoint.dir";

struct Fence {
  struct Owner {
    Writer writer;
    // The step of this directory that it went on from. 0: from none of them. Nothing: it has not
    // recorded, because it is still choosing or ended before.
    std::optional<int64_t> resumed_step;
    std::string source;  // the checkpoint that it went on from when that is named by checkpoint.resume
  };
  std::vector<Owner> owners;

  Standing Of(const Writer& writer, int64_t step) const;
  bool Readable(const Writer& writer, int64_t step) const { return Of(writer, step) == Standing::kReadable; }
  bool IsLast(const Writer& writer) const { return !owners.empty() && owners.back().writer == writer; }
  // Why `writer`, which is not the last owner, has to end: who came after it. REQUIRES: there are owners.
  std::string Superseded(const Writer& writer) const;
  // The highest attempt listed under a uid; 0 when there is none.
  int64_t LastAttempt(const std::string& job_uid) const;
  // The last owner that has recorded where it started; nullptr when there is none.
  const Owner* LastStarted() const;
  // Whether an attempt of this job has recorded where it started.
  bool HasStarted(const std::string& job_uid) const;

  // No file is an empty fence. Throws StorageError, with the remedy, for one that is damaged.
  static Fence Read(const std::filesystem::path& directory);
  // Appends an owner, not yet recorded, and replaces the file. Throws PeerError when the same uid is
  // already there with this attempt or a later one: a newer attempt owns the directory.
  static void Take(const std::filesystem::path& directory, const Writer& writer,
                   const std::function<bool()>& stop = {});
  // Records where the last owner starts. Throws PeerError when `writer` is not the last any more.
  static void Record(const std::filesystem::path& directory, const Writer& writer, int64_t resumed_step,
                     const std::string& source);
  // Makes `change` while no newer attempt can take the run over; it should need milliseconds. Throws PeerError, and
  // changes nothing, when one has. `stop` as FenceLock's.
  static void AsOwner(const std::filesystem::path& directory, const Writer& writer, const std::function<void()>& change,
                      const std::function<bool()>& stop = {});
  // Throws PeerError when `writer` is not the last owner any more, StorageError when the fence is not there any more.
  static void RequireOwner(const std::filesystem::path& directory, const Writer& writer);
};

// What an error of flock says to whoever wants the fence's lock.
enum class LockAnswer {
  kHeld,     // by another one, or a signal came: try again
  kNoLocks,  // this file system has none
  kTrouble   // it has, and cannot give one now: a server that is away, or too many locks
};
LockAnswer LockAnswerOf(int error);

// Held by one process at a time while it takes the fence over, or commits a step and removes others:
// a commit comes before a taking over, and is then seen by the choice, or it is refused.
// Where the file system has no locks (docs/formats.md) nothing is held; where it only fails to give one, that is an
// error, since another attempt may hold it.
class FenceLock {
 public:
  // Waits for another holder, which needs milliseconds unless it is frozen. Throws PeerError at the
  // deadline, StoppedError as soon as `stop` (may be empty) returns true; StorageError when the file system still fails
  // at the deadline, or in ten seconds.
  explicit FenceLock(const std::filesystem::path& directory, const std::function<bool()>& stop = {},
                     std::chrono::duration<double> deadline = std::chrono::seconds(120));
  ~FenceLock();
  FenceLock(const FenceLock&) = delete;
  FenceLock& operator=(const FenceLock&) = delete;

 private:
  void Acquire(const std::filesystem::path& file, const std::function<bool()>& stop,
               std::chrono::duration<double> deadline) const;
  int fd_ = -1;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_CHECKPOINT_FENCE_H_
