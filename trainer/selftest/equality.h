// The equality proof on this machine: each stage trains a small model to the same bits.
#ifndef TRAINYARD_TRAINER_SELFTEST_EQUALITY_H_
#define TRAINYARD_TRAINER_SELFTEST_EQUALITY_H_

#include <cstdint>
#include <functional>
#include <string>

#include "trainer/comm/communicator.h"
#include "trainer/parallel/memory_plan.h"

namespace trainyard::selftest {

// One way to train it.
struct Way {
  ZeroStage stage = ZeroStage::kDdp;
  Reduce reduce = Reduce::kLast;
  int64_t micro_batches = 1;  // of a step
  int64_t bucket_bytes = 25 << 20;

  std::string Name() const;  // "zero2, reduce every, accumulation 3"
};

// How many ways CompareStages compares.
int NumComparisons();

// Every rank calls it. Trains the model in each way, and compares weights and moments with the first way of its set:
// ddp, zero1, zero2 and zero3 that sum once a step; zero2 and zero3 that sum with every micro-batch; with one
// micro-batch all of them. Calls `done(way)` after each comparison. Returns on every rank what differs: "zero1, reduce
// last, accumulation 3: model.up.weight differs first, at element 5 of 185: 0.25 instead of 0.5"; empty when all are
// equal to the bit. Throws PeerError.
std::string CompareStages(Communicator& group, const std::function<void(const std::string& way)>& done);

}  // namespace trainyard::selftest

#endif  // TRAINYARD_TRAINER_SELFTEST_EQUALITY_H_
