// Another's weights, for a test that watches how units are run.
#ifndef TRAINYARD_TESTS_UNIT_FORWARDING_WEIGHTS_H_
#define TRAINYARD_TESTS_UNIT_FORWARDING_WEIGHTS_H_

#include "trainer/model/pass.h"

namespace trainyard {

class ForwardingWeights : public Weights {
 public:
  explicit ForwardingWeights(Weights& weights) : weights_(weights) {}
  const ModelDeclaration& declaration() const override { return weights_.declaration(); }
  at::Tensor Parameter(ParameterId id) override { return weights_.Parameter(id); }
  at::Tensor Buffer(BufferId id) override { return weights_.Buffer(id); }
  void StageBuffer(BufferId id, const at::Tensor& value) override { weights_.StageBuffer(id, value); }
  at::Tensor Gather(GatherId id, const at::Tensor& x) override { return weights_.Gather(id, x); }

 protected:
  Weights& weights_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TESTS_UNIT_FORWARDING_WEIGHTS_H_
