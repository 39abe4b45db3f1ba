// Samples and their order. A task gives both; the loader reads them on many threads.
#ifndef TRAINYARD_TRAINER_DATA_DATASET_H_
#define TRAINYARD_TRAINER_DATA_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>

#include "trainer/base/input_file.h"

namespace trainyard {

// Which reading of which sample.
struct SampleKey {
  int64_t id = 0;        // [0, Dataset::size)
  int64_t epoch = 0;     // the pass over the data that it belongs to
  int64_t position = 0;  // in the epoch
  // What random transforms draw from: a pure function of (run.seed, epoch, id), and of the position in an epoch that
  // repeats samples, so that they depend on neither world size, threads nor restarts.
  uint64_t key = 0;
  int64_t stage = 0;  // of the job's stages (task/stage.h): the one whose step it is read for
};

// What was read. Tasks derive their own.
struct Sample {
  virtual ~Sample() = default;
};

// Where the time of Dataset::Read went, in seconds of all threads together, and what a cache did; zeros where a data
// set does not say.
struct DatasetTimes {
  double decode = 0, transform = 0;  // the rest of reading is files
  int64_t cache_hits = 0, cache_misses = 0;
};

// Immutable: safe for any number of threads.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  // Of everything that training reads: part of a run's identity. Rank 0 asks for it, once, at the start; where that
  // takes long it calls `tick`, for which the others wait. Throws DataError, and StorageError as Read does.
  virtual std::string fingerprint(const Tick& tick) const = 0;
  // What tells these data from others of as many samples, in seconds, and is the same wherever they lie: every rank
  // asks for it at the start, and is refused where it is not rank 0's. Who has to read much for a fingerprint gives
  // what is in memory anyway, sizes of files, and samples of their contents. Calls `tick` and throws as fingerprint
  // does.
  virtual std::string glance(const Tick& tick) const { return fingerprint(tick); }
  // Throws DataError naming the file and the problem, which faults.bad_sample may skip; StorageError where the file
  // system gives no answer, which ends the run.
  virtual std::unique_ptr<Sample> Read(const SampleKey& key) const = 0;
  // xxh3 of a sample's inputs and targets, for the record.
  virtual uint64_t Hash(const Sample& sample) const = 0;
  // Since the start.
  virtual DatasetTimes times() const { return {}; }
};

// Which samples an epoch holds, and in which order: a pure function of (epoch, position), so that a run's place in its
// data is a count.
class Order {
 public:
  virtual ~Order() = default;
  virtual int64_t items() const = 0;  // of every epoch; at least 1
  // How many of an epoch's samples are others in the next one; 0 where every epoch holds all of them.
  virtual int64_t replaced() const { return 0; }
  // REQUIRES: 0 <= position < items().
  virtual int64_t ItemAt(int64_t epoch, int64_t position) const = 0;
  // Whether an epoch may hold a sample more than once: each reading of it then has random draws of its own.
  virtual bool repeats(int64_t) const { return false; }
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_DATA_DATASET_H_
