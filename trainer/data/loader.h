// Reads this rank's samples ahead of training, on several threads.
//
// One sample is one piece of work. A micro-batch is collated by the thread that read its last sample, and handed out in
// order; so memory is bounded by micro-batches beyond the share that was taken, and samples by micro-batches alone.
#ifndef TRAINYARD_TRAINER_DATA_LOADER_H_
#define TRAINYARD_TRAINER_DATA_LOADER_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "trainer/data/batch.h"
#include "trainer/data/sample_stream.h"

namespace trainyard {

// This rank's part of a step: its micro-batches in order.
using Share = std::vector<std::unique_ptr<Batch>>;

// Which positions of each step are this rank's.
struct ShareLayout {
  int64_t global_batch = 1;    // samples of a step
  int64_t begin = 0, end = 1;  // places in the global batch, half-open
  int64_t micro = 1;           // most samples of a micro-batch
};

struct LoaderOptions {
  int threads = 1;
  int64_t prefetch = 2;      // micro-batches read or being read beyond the last one taken
  bool hash_inputs = false;  // fill Batch::input_hashes
  bool skip_bad = false;     // a sample that cannot be read (DataError) keeps its place with weight 0
  // The step behind the last one of each stage, ascending; a step beyond them all is the last one's. Empty: one stage.
  std::vector<int64_t> stage_ends = {};
};

// Seconds of all threads together, since the start.
struct LoaderTimes {
  double read = 0;  // Dataset::Read, but for the next two
  double decode = 0, transform = 0;
  double collate = 0;
  double wait = 0;                           // of the thread that takes
  int64_t cache_hits = 0, cache_misses = 0;  // DatasetTimes'
};

// Contract
//   - Ordered: Next() gives the share of step s + 1 after that of s, its micro-batches and their samples in the
//   stream's
//     order, whichever thread was faster.
//   - Bounded: at most `prefetch` micro-batches are there or being made beyond those taken. Next() gives all those of a
//     share; who still has the share before then holds two.
//   - Errors keep their place: what reading or collating throws leaves Next() when that micro-batch is due. What the
//     order throws leaves the next Next().
//   - The destructor waits for samples that are being read and drops the rest.
// One thread calls Next.
class Loader {
 public:
  // Makes a micro-batch of samples in order; a null one could not be read and counts nothing. Called from any thread.
  using Collate = std::function<std::unique_ptr<Batch>(std::span<const Sample* const> samples)>;

  // `dataset` must outlive it. Starts with the share of step `first`, and reads nothing of step `end` and beyond.
  // Throws Error(kInternal) when the system gives no thread.
  Loader(const Dataset& dataset, SampleStream stream, Collate collate, const ShareLayout& layout, int64_t first,
         int64_t end, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // REQUIRES: fewer than end - first shares were taken.
  Share Next();
  LoaderTimes times() const;

 private:
  struct MicroBatch {
    std::vector<SampleKey> keys;
    std::vector<std::unique_ptr<Sample>> samples;
    std::vector<uint64_t> hashes;
    std::vector<SkippedSample> skipped;
    size_t started = 0, read = 0;
    std::unique_ptr<Batch> batch;
    std::exception_ptr error;  // of the first sample that failed
    size_t error_at = 0;
    bool ready = false;
  };
  struct Work {
    MicroBatch* micro_batch = nullptr;
    size_t index = 0;
  };

  void Run();
  void Stop();
  // The next sample to read, in order; nothing when all that may be read is.
  Work Claim();
  void OpenNext();
  void Read(const Work& work, std::unique_lock<std::mutex>& lock);
  void Finish(MicroBatch& micro_batch);
  std::unique_ptr<Batch> Take();

  const Dataset& dataset_;
  const SampleStream stream_;
  const Collate collate_;
  const ShareLayout layout_;
  const LoaderOptions options_;
  const int64_t per_step_;  // micro-batches of a step
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<MicroBatch>> open_;  // in order, the next one to take in front
  int64_t next_, end_;                            // micro-batches to open, counted from step 0
  bool stopping_ = false;
  std::exception_ptr failure_;  // of what belongs to no micro-batch; ends the loader
  std::atomic<double> read_seconds_{0}, collate_seconds_{0}, wait_seconds_{0};
  std::vector<std::thread> threads_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_DATA_LOADER_H_
