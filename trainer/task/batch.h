// What tasks exchange with the training loop.
#ifndef TRAINYARD_TRAINER_TASK_BATCH_H_
#define TRAINYARD_TRAINER_TASK_BATCH_H_

#include <cstdint>
#include <memory>
#include <vector>

namespace trainyard {

// One micro-batch on the host, collated by Task::Collate. Tasks derive their own.
struct Batch {
  virtual ~Batch() = default;
  std::vector<int64_t> ids;            // samples, in the stream's order
  std::vector<uint64_t> input_hashes;  // xxh3 of each sample's inputs and targets
  std::vector<double> denominators;    // one per loss term: this micro-batch's valid targets
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TASK_BATCH_H_
