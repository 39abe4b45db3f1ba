// Gradients are summed over micro-batches and ranks while backward still runs.
//
// A hook on each leaf moves its gradient into the flat buffer when backward has finished it. On the
// last micro-batch a bucket is sent as soon as all its parameters have arrived, strictly in the
// layout's order on every rank; Finish sends what is left. A parameter without a gradient counts as
// zero, so ranks never disagree about a bucket. Where ranks own shards, each gets the sum of its part of a bucket, and
// the rest of the buffer is of no use; it is the same sum, to the bit.
#ifndef TRAINYARD_TRAINER_PARALLEL_GRADIENT_REDUCER_H_
#define TRAINYARD_TRAINER_PARALLEL_GRADIENT_REDUCER_H_

#include <cstdint>
#include <vector>

#include "trainer/comm/collectives.h"
#include "trainer/parallel/flat_state.h"

namespace trainyard {

// Hooks are installed in the constructor and removed in the destructor; `state` and `collectives`
// must outlive it. Used by one thread.
class GradientReducer {
 public:
  GradientReducer(FlatState& state, Collectives& collectives, int64_t bucket_bytes);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  // Starts a step: the flat gradient counts as zero.
  void BeginStep();
  // Before the backward of each micro-batch; `last` lets buckets go. A parameter whose gradient arrives twice in the
  // last backward would be added to a bucket that is on its way: backward throws an error that names it.
  void BeginBackward(bool last);
  // While held, full buckets stay: another collective has its turn first.
  void Hold(bool held);
  // After the last backward: returns when state.gradient holds the sum over all ranks, of what this rank owns.
  // Throws PeerError when a collective failed.
  void Finish();
  // Of the step that was finished last: the share of buckets whose sum was there when backward ended,
  // [0, 1]; 0 in a world of one.
  double overlap() const { return overlap_; }
  // Instead of Finish, on a rank whose forward, backward or data failed: takes part in every
  // collective that is left, so that nobody waits for it. The gradient is then of no use.
  void Drain();

 private:
  struct Hook;
  struct Bucket {
    Range range;
    Range mine;       // what this rank gets the sum of
    int waiting = 0;  // parameters that overlap it and have not arrived on the last micro-batch
    int parameters = 0;
    Collectives::Ticket ticket = 0;
  };

  void Arrived(size_t parameter);
  void Accumulate(size_t parameter, const at::Tensor& gradient);
  void SendReady(bool all);

  FlatState& state_;
  Collectives& collectives_;
  std::vector<Bucket> buckets_;                  // in sending order
  std::vector<std::vector<size_t>> buckets_of_;  // parameter -> buckets
  std::vector<bool> touched_, arrived_;          // in this step; on this last micro-batch
  size_t next_ = 0;                              // first bucket that was not sent
  bool last_ = false, held_ = false;
  double overlap_ = 0;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_PARALLEL_GRADIENT_REDUCER_H_
