// The differentiable all-gather behind Pass::Gather, as a fixed part of a step's collectives.
#ifndef TRAINYARD_TRAINER_PARALLEL_GATHER_H_
#define TRAINYARD_TRAINER_PARALLEL_GATHER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "trainer/comm/collectives.h"
#include "trainer/model/builder.h"

namespace trainyard {

// Every micro-batch makes each declared gather once, in the declared order, and its backward in the reverse one: that
// is the schedule, 2 x gathers collectives for each micro-batch of the rank that has most. A rank with fewer, or one
// that failed, takes part in what is left with no rows. Used by one thread; everything must outlive it.
class GatherSchedule {
 public:
  // `rows`: the most that a rank gives at once, on `device`. `over` is called after each that belongs to a backward.
  GatherSchedule(const ModelDeclaration& declaration, int64_t rows, at::Device device, Collectives& collectives,
                 std::function<void()> over);

  void BeginStep(int64_t micro_batches);
  // x: (n, columns) float32 with n <= rows -> (rows of all ranks, columns), in rank order; differentiable. Every rank
  // that is here gets the same values. Throws std::logic_error when it is not this gather's turn.
  at::Tensor Gather(GatherId id, const at::Tensor& x);
  // Takes part in everything that is left of the first `micro_batches` of the step.
  void Complete(int64_t micro_batches);
  // In the next one.
  void CompleteNext();
  // Collectives of this step that were made.
  size_t made() const { return next_; }
  bool complete(int64_t micro_batches) const { return next_ >= EndOf(micro_batches); }

 private:
  friend struct GatherFunction;
  size_t EndOf(int64_t micro_batches) const;
  // Where in the schedule a collective of gather `id` lies within its micro-batch.
  size_t Turn(GatherId id, bool backward) const;
  // That its turn has come. It is over when its collective is on its way: what fails before that leaves it to Complete.
  void Require(GatherId id, bool backward) const;
  // One rank's rows, their number in front, padded -> everyone's.
  at::Tensor Exchange(GatherId id, const at::Tensor& rows, std::vector<int64_t>& counts);
  // Sums over the ranks the gradient of what was gathered; returns the part of this rank's rows.
  at::Tensor SumGradient(GatherId id, const at::Tensor& gradient, const std::vector<int64_t>& counts);

  const std::vector<int64_t>& columns_;
  const int64_t rows_;
  const at::TensorOptions floats_;
  Collectives& collectives_;
  std::function<void()> over_;
  size_t next_ = 0, total_ = 0;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_PARALLEL_GATHER_H_
