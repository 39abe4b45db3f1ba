// The order of samples: a pure function of (seed, number of samples). It depends on neither world
// size, workers nor restarts; the only state is the count of samples that were consumed.
#ifndef TRAINYARD_TRAINER_DATA_SAMPLE_STREAM_H_
#define TRAINYARD_TRAINER_DATA_SAMPLE_STREAM_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/base/random.h"
#include "trainer/data/dataset.h"

namespace trainyard {

// A keyed bijection of [0, n): a four-round Feistel network over the next power of four, walked
// until the value falls inside (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002).
class Permutation {
 public:
  // REQUIRES: n > 0.
  Permutation(uint64_t n, uint64_t key) : n_(n), key_(key) {
    while (half_bits_ < 32 && (uint64_t{1} << (2 * half_bits_)) < n) ++half_bits_;
  }
  // REQUIRES: x < n.
  uint64_t operator()(uint64_t x) const {
    do {
      x = Round(x);
    } while (x >= n_);
    return x;
  }

 private:
  uint64_t Round(uint64_t x) const {
    const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
    uint64_t left = x >> half_bits_, right = x & mask;
    for (uint32_t round = 0; round < 4; ++round) {
      const PhiloxBlock block = Philox({static_cast<uint32_t>(right), round, 0, 0}, key_);
      const uint64_t next = left ^ (block[0] & mask);
      left = right;
      right = next;
    }
    return left << half_bits_ | right;
  }

  uint64_t n_, key_;
  int half_bits_ = 1;
};

// Every sample once an epoch, each epoch in a permutation of its own.
class PermutedOrder : public Order {
 public:
  PermutedOrder(int64_t num_samples, uint64_t seed) : num_samples_(num_samples), seed_(seed) {}
  int64_t items() const override { return num_samples_; }
  int64_t ItemAt(int64_t epoch, int64_t position) const override {
    const Permutation order(static_cast<uint64_t>(num_samples_),
                            HashKey(seed_, NameKey("samples"), static_cast<uint64_t>(epoch)));
    return static_cast<int64_t>(order(static_cast<uint64_t>(position)));
  }

 private:
  int64_t num_samples_;
  uint64_t seed_;
};

enum class EpochEnd {
  kCarry,  // a batch may hold the end of one epoch and the start of the next
  kDrop,   // what fills no batch at an epoch's end is left out
};

// The concatenation of every epoch of an order. Immutable; copies share the order.
class SampleStream {
 public:
  SampleStream(std::shared_ptr<const Order> order, uint64_t seed, EpochEnd end, int64_t global_batch)
      : order_(std::move(order)),
        seed_(seed),
        epoch_size_(end == EpochEnd::kDrop ? order_->items() / global_batch * global_batch : order_->items()) {}

  // Samples of one epoch. 0 when dropping leaves nothing: the batch is larger than the data.
  int64_t epoch_size() const { return epoch_size_; }

  // The reading at a position of the stream, counted from the first epoch's start.
  SampleKey At(int64_t position) const {
    const int64_t epoch = position / epoch_size_, at = position % epoch_size_;
    const int64_t id = order_->ItemAt(epoch, at);
    uint64_t reading = HashKey(static_cast<uint64_t>(epoch), static_cast<uint64_t>(id));
    if (order_->repeats(epoch)) reading = HashKey(reading, static_cast<uint64_t>(at));
    return {id, epoch, at, HashKey(seed_, NameKey("sample"), reading), 0};
  }

 private:
  std::shared_ptr<const Order> order_;
  uint64_t seed_;
  int64_t epoch_size_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_DATA_SAMPLE_STREAM_H_
