#include "trainer/model/token_loss.h"

#include <ATen/ops/cross_entropy_loss.h>

#include <optional>

#include "trainer/model/device_rows.h"
#include "trainer/model/product.h"

namespace trainyard {

at::Tensor SumOfTokenLosses(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets, int64_t ignored) {
  if (!x.is_cpu()) return device_ops::TokenLoss(x.flatten(0, -2), weight, targets.flatten(), ignored);
  const at::Tensor logits = Product(x, weight, std::nullopt).to(at::kFloat);
  return at::cross_entropy_loss(logits.flatten(0, -2), targets.flatten(), {}, at::Reduction::Sum, ignored);
}

}  // namespace trainyard
