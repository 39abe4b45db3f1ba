// What the loader hands to training.
#ifndef TRAINYARD_TRAINER_DATA_BATCH_H_
#define TRAINYARD_TRAINER_DATA_BATCH_H_

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard {

// A sample that could not be read.
struct SkippedSample {
  int64_t id = 0;
  std::string error;
};

// One micro-batch on the host, collated by the task. Tasks derive their own.
struct Batch {
  virtual ~Batch() = default;
  std::vector<double> denominators;  // one per loss term: this micro-batch's valid targets; set by the task
  // Set by the loader:
  std::vector<int64_t> ids;            // samples, in the stream's order
  int64_t stage = 0;                   // SampleKey::stage of all of them
  std::vector<uint64_t> input_hashes;  // xxh3 of each sample's inputs and targets, 0 for a skipped one; or empty
  std::vector<SkippedSample> skipped;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_DATA_BATCH_H_
