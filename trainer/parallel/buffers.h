// A model's buffers on one rank: what forward sees, what a step has staged, and what its update commits.
#ifndef TRAINYARD_TRAINER_PARALLEL_BUFFERS_H_
#define TRAINYARD_TRAINER_PARALLEL_BUFFERS_H_

#include <ATen/core/Tensor.h>

#include <vector>

#include "trainer/comm/collectives.h"
#include "trainer/model/builder.h"

namespace trainyard {

// Not for concurrent use. `declaration` must outlive it.
class Buffers {
 public:
  Buffers(const ModelDeclaration& declaration, at::Device device);
  bool empty() const { return committed_.empty(); }

  // Float32, in its shape. What was staged in this step is seen by its later micro-batches.
  at::Tensor Get(BufferId id) const;
  void Stage(BufferId id, const at::Tensor& value);
  void Discard();
  // Makes of what the ranks have staged what their policies say. Every rank calls it in every step, with or without
  // something staged.
  void Reduce(Collectives& collectives);
  // After Reduce: the staged values are the buffers'.
  void Commit();

  // The committed tensor of a buffer, to save and load.
  at::Tensor& committed(size_t i) { return committed_[i]; }

 private:
  const ModelDeclaration& declaration_;
  std::vector<at::Tensor> committed_, staged_;  // staged: undefined where nothing is
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_PARALLEL_BUFFERS_H_
