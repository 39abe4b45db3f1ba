// Gradients that are summed once a step (gradient_reducer.h).
#ifndef TRAINYARD_TRAINER_PARALLEL_REDUCE_LAST_H_
#define TRAINYARD_TRAINER_PARALLEL_REDUCE_LAST_H_

#include <cstdint>
#include <vector>

#include "trainer/parallel/gradient_hooks.h"
#include "trainer/parallel/gradient_reducer.h"

namespace trainyard {

// The gradient of `state` is whole. A bucket goes when all its parameters have arrived on the last micro-batch; Finish
// sends what is left.
class ReduceLast : public GradientReducer {
 public:
  ReduceLast(FlatState& state, Collectives& collectives, const ReducerOptions& options);

  void BeginStep() override;
  void BeginBackward(bool last) override { last_ = last; }
  void Hold(bool held) override;
  void SendThrough(size_t buckets) override;
  void EndBackward() override {}
  void Finish() override;
  void Drain() override { hooks_.Forget(); }
  double overlap() const override { return overlap_; }

 private:
  struct Bucket {
    Range range;
    Range mine;       // what this rank gets the sum of
    int waiting = 0;  // parameters that overlap it and have not arrived on the last micro-batch
    int parameters = 0;
    Collectives::Ticket ticket = 0;
  };

  void Arrived(size_t parameter, const at::Tensor& gradient);
  // In order what is ready, and the first `through` in any case.
  void SendReady(size_t through);
  void Send(size_t bucket);
  // Its sum is in the gradient.
  void Retire(size_t bucket);

  FlatState& state_;
  Collectives& collectives_;
  std::vector<Bucket> buckets_;  // in sending order
  std::vector<std::vector<size_t>> buckets_of_;
  std::vector<bool> touched_, arrived_;  // in this step; on this last micro-batch
  size_t next_ = 0, retired_ = 0;        // first bucket that was not sent; whose sum is not there
  BF16Slots slots_;
  bool last_ = false, held_ = false;
  double overlap_ = 0;
  GradientHooks hooks_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_PARALLEL_REDUCE_LAST_H_
