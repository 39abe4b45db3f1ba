// Gradients that are summed with every micro-batch (gradient_reducer.h).
#ifndef TRAINYARD_TRAINER_PARALLEL_REDUCE_EVERY_H_
#define TRAINYARD_TRAINER_PARALLEL_REDUCE_EVERY_H_

#include <array>
#include <cstdint>
#include <vector>

#include "trainer/parallel/gradient_hooks.h"
#include "trainer/parallel/gradient_reducer.h"

namespace trainyard {

// The gradient of `state` is a shard. A micro-batch is a round: each bucket is put together in one of two slots, sent,
// and its sum added to the shard. While one is on its way the next one fills; a gradient that belongs to the one behind
// waits for a slot, and backward with it.
class ReduceEvery : public GradientReducer {
 public:
  ReduceEvery(FlatState& state, Collectives& collectives, const ReducerOptions& options);

  // What the slots take, float32.
  static int64_t SlotBytes(const FlatLayout& layout, int64_t bucket_bytes);

  void BeginStep() override;
  void BeginBackward(bool) override {}
  void Hold(bool held) override;
  void SendThrough(size_t buckets) override { Advance(buckets); }
  void EndBackward() override;
  void Finish() override;
  void Drain() override;
  double overlap() const override { return overlap_; }

 private:
  static constexpr size_t kSlots = BF16Slots::kSlots;
  struct Bucket {
    Range range;
    std::vector<size_t> parameters;  // that overlap it
    size_t waiting = 0;              // those of them that have not arrived in this round
  };

  void Arrived(size_t parameter, const at::Tensor& gradient);
  void BeginRound();
  // Sends, retires and opens what can be, in order. It waits for a bucket that is on its way where a gradient that has
  // arrived needs its slot. The first `through` buckets go in any case.
  void Advance(size_t through);
  void Open();
  void Put(size_t bucket, size_t parameter);
  void Send();
  void Retire();
  bool Needed(size_t bucket) const;
  at::Tensor Slot(size_t number) const;  // of the step's bucket of that number
  // What is sent of it, and of that this rank's part.
  at::Tensor Sent(size_t number) const;
  at::Tensor MineOf(size_t number) const;

  FlatState& state_;
  Collectives& collectives_;
  std::vector<Bucket> buckets_;  // in sending order
  std::vector<std::vector<size_t>> buckets_of_;
  std::array<at::Tensor, kSlots> slots_;
  BF16Slots rounded_;
  std::array<Collectives::Ticket, kSlots> tickets_{};
  std::vector<bool> arrived_;        // in this round
  std::vector<at::Tensor> came_;     // their gradients, until all of it was put into slots
  std::vector<size_t> left_to_put_;  // buckets, of each
  size_t rounds_ = 0;                // that have ended
  // Numbers of the step's buckets, counted over its rounds: retired_ <= sent_ <= opened_ <= retired_ + kSlots.
  size_t retired_ = 0, sent_ = 0, opened_ = 0;
  bool held_ = false;
  double overlap_ = 0;
  GradientHooks hooks_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_PARALLEL_REDUCE_EVERY_H_
