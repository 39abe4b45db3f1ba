// The gradient of a batch's moments, which is added to that of the values where it lies.
#include "trainer/model/batch_moments.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

namespace trainyard {
namespace {

constexpr int64_t B = 3, C = 4;

// In float32, by LibTorch: (B, 2 C).
at::Tensor MomentsByTorch(const at::Tensor& x) {
  const at::Tensor places = x.to(at::kFloat).flatten(2);
  return at::cat({places.mean(2), places.var(2, false)}, 1);
}

// Half of a bfloat16's last bit, once.
double Rounding(at::ScalarType type) { return type == at::kFloat ? 0 : 1.0 / 256; }

class BatchMoments : public testing::TestWithParam<at::ScalarType> {
 protected:
  at::Tensor Draw() const { return at::randn({B, C, 3, 5, 2}).to(GetParam()); }
  void ExpectNear(const at::Tensor& ours, const at::Tensor& theirs) const {
    constexpr double kOrder = 1e-5;  // float32 sums in another order
    const at::Tensor wide = theirs.to(at::kFloat), apart = (ours.to(at::kFloat) - wide).abs();
    EXPECT_TRUE((apart <= wide.abs() * Rounding(GetParam()) + kOrder).all().item<bool>()) << ours << theirs;
  }
};

TEST_P(BatchMoments, AreTorchs) {
  const at::Tensor x = Draw();
  const WithMoments of = SampleMoments(x);
  EXPECT_TRUE(of.x.is_same(x));
  EXPECT_LT((of.moments - MomentsByTorch(x)).abs().max().item<double>(), 1e-5);  // float32 sums in another order
}

// Alone, beside one use of the values and beside two.
TEST_P(BatchMoments, HaveTorchsGradient) {
  const at::Tensor values = Draw(), dm = at::randn({B, 2 * C});
  for (int64_t uses = 0; uses < 3; ++uses) {
    const at::Tensor x = values.clone().requires_grad_(), same = values.to(at::kFloat).clone().requires_grad_();
    const WithMoments of = SampleMoments(x);
    std::vector<at::Tensor> ours = {of.moments}, theirs = {MomentsByTorch(same)}, gradients = {dm}, wide = {dm};
    for (int64_t i = 0; i < uses; ++i) {
      ours.push_back(of.x * (i + 1));
      theirs.push_back(same * (i + 1));
      gradients.push_back(Draw().round());  // whole numbers, whose sums are exact
      wide.push_back(gradients.back().to(at::kFloat));
    }
    torch::autograd::backward(ours, gradients);
    torch::autograd::backward(theirs, wide);
    ExpectNear(x.grad(), same.grad());
  }
}

// A gradient that others have too stays as it is: a sum hands the same tensor to each of its summands.
TEST_P(BatchMoments, LeaveAGradientThatOthersHave) {
  const at::Tensor x = Draw().requires_grad_(), z = Draw().requires_grad_(), dy = Draw(), before = dy.clone();
  const WithMoments of = SampleMoments(x);
  torch::autograd::backward({of.x + z, of.moments}, {dy, at::ones({B, 2 * C})});
  EXPECT_TRUE(dy.equal(before));
  EXPECT_TRUE(z.grad().equal(before));
  EXPECT_FALSE(x.grad().equal(before));
}

INSTANTIATE_TEST_SUITE_P(Types, BatchMoments, testing::Values(at::kFloat, at::kBFloat16));

}  // namespace
}  // namespace trainyard
