#include "trainer/task/algorithm_distillation/distillation_batch.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "trainer/base/hash.h"

namespace trainyard::ad {

void FillBatch(std::span<const Window> windows, DistillationBatch& batch) {
  const auto B = static_cast<int64_t>(windows.size());
  int64_t C = 0, Q = 0;
  for (const Window& window : windows) {
    C = std::max(C, static_cast<int64_t>(window.rows.size()));
    Q = std::max(Q, static_cast<int64_t>(window.queries.size()));
  }
  batch.input.features = at::zeros({B, C, kFeatures}, at::kFloat);
  batch.input.kinds = at::zeros({B, C}, at::kLong);
  batch.input.states = at::zeros({B, Q}, at::kLong);
  batch.input.visible = at::zeros({B, Q}, at::kInt);
  batch.actions = at::full({B, Q}, kIgnored, at::kLong);
  batch.types = at::full({B, Q}, kIgnored, at::kLong);
  batch.denominators = {0, 0};
  for (int64_t b = 0; b < B; ++b) {
    const Window& window = windows[static_cast<size_t>(b)];
    float* feature = batch.input.features.data_ptr<float>() + b * C * kFeatures;
    int64_t* kind = batch.input.kinds.data_ptr<int64_t>() + b * C;
    for (const Window::Row& row : window.rows) {
      *kind++ = row.kind;
      if (row.step) {
        feature[0] = row.step->row;
        feature[1] = row.step->column;
        feature[2 + row.step->action] = 1;
        feature[7] = row.step->reward;
        feature[8] = row.step->next_row;
        feature[9] = row.step->next_column;
      }
      feature += kFeatures;
    }
    for (size_t i = 0; i < window.queries.size(); ++i) {
      const Window::Query& query = window.queries[i];
      const int64_t at = b * Q + static_cast<int64_t>(i);
      batch.input.states.data_ptr<int64_t>()[at] = query.state;
      batch.input.visible.data_ptr<int32_t>()[at] = query.visible;
      batch.actions.data_ptr<int64_t>()[at] = query.action;
      batch.types.data_ptr<int64_t>()[at] = query.token_type;
      batch.denominators[0] += query.action != kIgnored;
      batch.denominators[1] += query.token_type != kIgnored;
    }
  }
}

uint64_t HashWindow(const Window& window) {
  std::vector<int64_t> words;
  for (const Window::Row& row : window.rows) {
    words.push_back(row.kind);
    if (row.step) words.push_back(static_cast<int64_t>(Xxh3Of(std::span(row.step, 1))));
  }
  for (const Window::Query& query : window.queries) {
    words.insert(words.end(), {query.state, query.visible, query.action, query.token_type});
  }
  return Xxh3Of(std::span<const int64_t>(words));
}

}  // namespace trainyard::ad
