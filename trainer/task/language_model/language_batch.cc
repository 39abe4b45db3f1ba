#include "trainer/task/language_model/language_batch.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace trainyard::lm {

void FillBatch(std::span<const std::span<const Token>> windows, int64_t context, LanguageBatch& batch) {
  const int64_t B = std::ssize(windows);
  batch.tokens = at::zeros({B, context}, at::kLong);
  batch.targets = at::full({B, context}, kIgnored, at::kLong);
  batch.denominators = {0};
  for (int64_t b = 0; b < B; ++b) {
    const std::span<const Token> window = windows[static_cast<size_t>(b)];
    if (window.empty()) continue;
    std::copy_n(window.begin(), context, batch.tokens.data_ptr<int64_t>() + b * context);
    std::copy_n(window.begin() + 1, context, batch.targets.data_ptr<int64_t>() + b * context);
    batch.denominators[0] += static_cast<double>(context);
  }
}

}  // namespace trainyard::lm
