// Samples behind the deterministic part of their preparation: kept in files for every rank of a node, and replaced in
// the background, window by window (window_order.h).
//
// What the cache does shows in no sample: which ones an epoch holds says the order, a pure function of (seed, epoch, N,
// R), and a sample that is not kept (not yet, the disk is full, the folder vanished) is prepared where it is read. So
// the stream depends on neither the world size, the cache nor restarts. One cache per node rather than per rank: with
// one per rank, each holding a window of its own part as MONAI does it, which samples an epoch holds would depend on
// the number of ranks.
#ifndef TRAINYARD_TRAINER_DATA_SMART_CACHE_H_
#define TRAINYARD_TRAINER_DATA_SMART_CACHE_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/data/item_store.h"
#include "trainer/data/stage_times.h"
#include "trainer/data/window_order.h"

namespace trainyard {

// A number for the state of files that a sample is made of (names, inodes, sizes, times of change) and for what is made
// of them (Transforms::description). A file that is not there counts as such. Throws nothing.
uint64_t StampOf(const std::vector<std::filesystem::path>& files, const std::string& preparation);

struct SmartCacheOptions {
  int64_t length = 0;  // samples there are
  Window window;       // ResolveWindow's
  uint64_t seed = 0;   // the order's
  // Where samples are kept; empty: nowhere, each is prepared when it is read.
  std::filesystem::path folder;
  // The ranks of this node share the work of preparing: this one does every `shares`-th sample.
  int share = 0, shares = 1;
  uint64_t reserve_bytes = uint64_t{1} << 30;  // of the disk that stay free
  bool in_background = true;                   // prepare the next window while this one is read
};

// Contract
//   - Get gives the same volumes whatever is kept.
//   - No waiting: a reader never waits for another thread or process. Of one that comes early it prepares the sample
//     itself.
//   - Bounded: N + R samples are kept, per node. What leaves the window is removed before what comes next is prepared,
//   and what a writer left that ended long ago before anything is kept.
//   - What cannot be kept is a warning on stderr, once, and tried again after a minute; Get goes on.
// Safe for any number of threads.
class SmartCache {
 public:
  // Prepares a sample: reads it and applies the deterministic transforms. `times`, where given, gets what it took.
  using Prepare = std::function<std::vector<Volume>(int64_t id, StageTimes* times)>;
  // StampOf the sample's files: a sample that was kept under another one is prepared again.
  using Stamp = std::function<uint64_t(int64_t id)>;

  // Reads and writes nothing yet, and starts no thread. Both functions are called from any thread.
  SmartCache(const SmartCacheOptions& options, Prepare prepare, Stamp stamp);
  // Waits for a sample that is being prepared in the background.
  ~SmartCache();
  SmartCache(const SmartCache&) = delete;
  SmartCache& operator=(const SmartCache&) = delete;

  // Throws what `prepare` throws. `key.epoch` moves the window: reading one starts what prepares the next.
  std::vector<Volume> Get(const SampleKey& key, StageTimes* times = nullptr);

  struct Counts {
    int64_t hits = 0, misses = 0;  // of Get
    int64_t prepared = 0;          // in the background
    int64_t failed = 0;            // to be kept
  };
  Counts counts() const;

 private:
  uint64_t StampOfItem(int64_t id);
  void Keep(int64_t id, const std::vector<Volume>& volumes);
  void OnEpoch(const SampleKey& key);
  void Run();
  void MoveWindow(int64_t epoch);
  bool Interrupted(int64_t epoch) const;

  const SmartCacheOptions options_;
  const Prepare prepare_;
  const Stamp stamp_;
  const ItemStore store_;
  const std::optional<WindowOrder> order_;           // where there is a window
  std::unique_ptr<std::atomic<uint64_t>[]> stamps_;  // by sample; 0: not asked for yet
  std::atomic<double> retry_at_{0};                  // keeping has failed
  std::atomic<bool> warned_{false}, swept_{false};
  std::atomic<int64_t> hits_{0}, misses_{0}, prepared_{0}, failed_{0};

  std::atomic<int64_t> epoch_{-1};  // the latest whose next window was asked for
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_DATA_SMART_CACHE_H_
