// Saves checkpoints behind training's back: a thread copies, writes and commits.
//
//   step-00001000.tmp-<tag>/              while it is written
//   step-00001000/                        once it is complete (rename)
//   latest                                the name of the newest committed step
//
// Every rank writes its own file and reports size and checksum through the store; rank 0 waits for
// all and writes the manifest last. Then, while nobody can take the fence over, it checks that it is
// still the last owner, renames, and moves out of the way what retention does not keep. No collective
// is involved. What was said in the store about a step is deleted when all have heard it.
#ifndef TRAINYARD_TRAINER_CHECKPOINT_WRITER_H_
#define TRAINYARD_TRAINER_CHECKPOINT_WRITER_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/retention.h"
#include "trainer/comm/signs_of_life.h"
#include "trainer/comm/store.h"

namespace trainyard {

// A part of a tensor that this rank saves.
struct SourceSlice {
  std::string key;
  std::vector<int64_t> shape;  // of the whole tensor
  int64_t begin = 0, end = 0;
  std::function<void(float* to)> copy;  // writes elements [begin, end); called once by the writer's thread, then gone
};

// Whether what is copied stays as it is until it has been; else it must not change until WaitCopied returns.
enum class Sources { kChange, kStay };

struct WriterOptions {
  std::filesystem::path directory;
  Writer writer;
  int rank = 0, world = 1;
  Retention retention;
  std::optional<CommittedCheckpoint> resumed = {};  // the step of this directory that the attempt goes on from
  // How often rank 0 looks whether a newer attempt owns the directory: nothing else tells a run that was superseded
  // before its next save.
  std::chrono::milliseconds owner_interval{10'000};
  LifeOptions life = {};  // of ranks whose part of a checkpoint is waited for; `alive` is called by the writer's thread
};

// Used by one thread. One checkpoint is in flight at a time.
class CheckpointWriter {
 public:
  CheckpointWriter(WriterOptions options, std::shared_ptr<Store> store);
  // Gives up a checkpoint in flight that still waits for other ranks; Finish comes first on every
  // path on which it should become durable.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Starts saving. Waits first for the one in flight, and throws its error; not for the removal of old steps, which the
  // new one interrupts.
  // `state` is the manifest's: rank 0's; what the others give, who do not know all of it, is not read.
  void Begin(int64_t step, std::vector<SourceSlice> slices, nlohmann::json state, Sources sources = Sources::kChange);
  // Returns when the sources of the checkpoint in flight may change: at once where they stay.
  void WaitCopied();
  // Returns when nothing holds the sources of the checkpoint in flight any more, whether they stay or not.
  void WaitTaken();
  // Returns when nothing is in flight and the old steps are removed. Throws NonFiniteError if a weight is no number (on
  // every rank: nothing was committed), StorageError if this rank's part, or rank 0's commit, failed (ToldError
  // on the other ranks; PeerError when another rank fell silent, or when a newer attempt owns the directory: whatever
  // failed then is its doing; OutOfMemoryError with the size of the copy that could not be made).
  void Finish();
  // Waits at most so long until nothing is in flight; never throws.
  void Settle(std::chrono::duration<double> deadline);
  // Throws the error of a checkpoint that has failed meanwhile; never waits.
  void ThrowIfFailed();
  // Fence::AsOwner.
  void AsOwner(const std::function<void()>& change) const;
  // The newest one that is durable: until one of this attempt's is, the one that it goes on from.
  std::optional<CommittedCheckpoint> last() const;
  const std::filesystem::path& directory() const { return options_.directory; }

 private:
  struct Job {
    int64_t step = 0;
    std::vector<SourceSlice> slices;
    nlohmann::json state;
  };
  void Loop();
  // Why this attempt has lost the run; null while it has not, or where nothing is known.
  std::exception_ptr Superseded() const;
  // Throws PeerError when a newer attempt owns the directory, and so the run.
  void RequireOwner() const;
  nlohmann::json WritePart(const Job& job, const std::filesystem::path& temporary);
  void Save(Job& job);
  void CopySources(Job& job);
  Manifest Collect(const Job& job);
  uint64_t Commit(const Job& job, const std::filesystem::path& temporary, std::vector<std::filesystem::path>& outdated);
  std::vector<std::filesystem::path> Announce(int64_t step);
  void RemoveOutdated();
  void TellStuck(const StuckFolder& stuck);
  nlohmann::json CommitOrExplain(const Job& job, const std::filesystem::path& temporary,
                                 std::vector<std::filesystem::path>& outdated);
  static std::string Key(int64_t step, const std::string& what);

  const WriterOptions options_;
  std::shared_ptr<Store> store_;
  std::vector<float> slab_;
  std::string verdict_;                          // rank 0: the key of its last one
  std::set<int64_t> kept_;                       // rank 0: Retain's
  bool told_ = false;                            // rank 0: that an old step cannot be removed
  std::vector<std::filesystem::path> outdated_;  // rank 0: what retention has moved out of the way; the thread's
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Job> job_;
  std::atomic<bool> cancelled_{false};
  SignsOfLife signs_;
  bool copied_ = true, taken_ = true, busy_ = false, removing_ = false, stopping_ = false;
  std::exception_ptr error_;
  std::optional<CommittedCheckpoint> last_;
  std::thread thread_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_CHECKPOINT_WRITER_H_
