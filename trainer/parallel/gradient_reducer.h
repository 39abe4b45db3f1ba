// Gradients are summed over micro-batches and ranks while backward still runs.
//
// Buckets are sent strictly in the layout's order on every rank. A parameter without a gradient counts as zero, so
// ranks never disagree about a bucket. The sum of an element depends on the order of the ranks alone, not on buckets
// and not on who gets it.
//   last   Micro-batches are summed on each rank, and the ranks' sums once a step: what ddp and ZeRO do that hold whole
//          gradients. With shards each rank gets the sum of its part of a bucket, and the rest is of no use.
//   every  The ranks' gradients of each micro-batch are summed, and each rank adds up its shard of them: nobody holds a
//          whole gradient, for as many times the traffic as there are micro-batches.
#ifndef TRAINYARD_TRAINER_PARALLEL_GRADIENT_REDUCER_H_
#define TRAINYARD_TRAINER_PARALLEL_GRADIENT_REDUCER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "trainer/comm/collectives.h"
#include "trainer/parallel/flat_state.h"

namespace trainyard {

// What two buckets that are on their way are sent as, where that is not their float32 values: rounded to bfloat16. A
// bucket's number is that of its turn in the step.
class BF16Slots {
 public:
  static constexpr size_t kSlots = 2;
  // `elements`: of the largest bucket; 0: there are no slots, and values are sent as they are.
  BF16Slots(int64_t elements, Device& device);
  static int64_t Bytes(int64_t elements);

  bool used() const { return slots_[0].defined(); }
  // Rounds float32 values into the slot of a bucket.
  at::Tensor Round(size_t number, const at::Tensor& values);
  // Where they lie.
  at::Tensor Of(size_t number, int64_t elements) const;

 private:
  Device& device_;
  std::array<at::Tensor, kSlots> slots_;
};

// Used by one thread.
//   BeginStep; for each micro-batch { BeginBackward; backward; EndBackward }; Finish (or Drain)
class GradientReducer {
 public:
  virtual ~GradientReducer() = default;

  // Starts a step: the gradient counts as zero.
  virtual void BeginStep() = 0;
  // Before the backward of each micro-batch; `last` is the rank's last one. A parameter whose gradient arrives twice in
  // a backward that sends buckets would be added to one that is on its way: backward throws an error that names it.
  virtual void BeginBackward(bool last) = 0;
  // While held, buckets stay, whose gradients have arrived: another collective has its turn first. SendThrough,
  // EndBackward and Finish send them all the same: when those come, so has the buckets' turn.
  virtual void Hold(bool held) = 0;
  // In a backward that sends buckets: the first `buckets` of them go now, whether held or not. What has not arrived of
  // them counts as zero, and may not arrive any more.
  virtual void SendThrough(size_t buckets) = 0;
  // After it, and once for each micro-batch that the rank with most of them has and this one has not.
  virtual void EndBackward() = 0;
  // After the last one: returns when state.gradient holds the sum over all ranks, of what this rank owns. Throws
  // PeerError when a collective failed.
  virtual void Finish() = 0;
  // After a forward, backward or data that failed, before the EndBackward that are left: the rank goes on taking part
  // in every collective, so that nobody waits for it. The gradient is then of no use.
  virtual void Drain() = 0;
  // Of the step that was finished last: the share of buckets whose sum was there when backward ended, [0, 1]; 0 in a
  // world of one.
  virtual double overlap() const = 0;
};

struct ReducerOptions {
  int64_t bucket_bytes = 25 << 20;
  // Gradients are rounded to bfloat16 on their way between ranks; each rank's own sums stay float32.
  bool bf16 = false;
};

// `every` where the gradient of `state` is a shard, else `last`. Both must outlive it.
std::unique_ptr<GradientReducer> MakeGradientReducer(FlatState& state, Collectives& collectives,
                                                     const ReducerOptions& options);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_PARALLEL_GRADIENT_REDUCER_H_
