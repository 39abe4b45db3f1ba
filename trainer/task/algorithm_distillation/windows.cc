#include "trainer/task/algorithm_distillation/windows.h"

#include "trainer/base/error.h"
#include "trainer/base/text.h"

namespace trainyard::ad {
namespace {

int StateOf(const Transition& step) { return step.row * kGridSize + step.column; }

// The state that the action after `history[i]` is taken in.
int StateAfter(std::span<const Transition> history, size_t i, Cell start) {
  if (i + 1 < history.size()) return StateOf(history[i + 1]);
  const Transition& step = history[i];
  return step.done ? start.row * kGridSize + start.column : step.next_row * kGridSize + step.next_column;
}

}  // namespace

Windows::Windows(const Histories& histories, std::vector<int> tasks, std::vector<DarkRoom> rooms,
                 const Options& options)
    : histories_(histories),
      tasks_(std::move(tasks)),
      rooms_(std::move(rooms)),
      compressed_(options.mode == "compressed"),
      every_(options.loss == "every_position"),
      transitions_(options.model.context - 1) {
  const int64_t length = histories_.length();
  if (compressed_) {
    per_history_ = length / kRolloutSteps * (every_ ? 1 : kRolloutSteps + 1);
  } else {
    per_history_ = length - transitions_;
  }
  if (per_history_ < 1) {
    throw DataError(
        Format("data.path: histories of %lld transitions are too short; model.context %lld needs at least %lld",
               static_cast<long long>(length), static_cast<long long>(options.model.context),
               static_cast<long long>(compressed_ ? kRolloutSteps : options.model.context)));
  }
}

Window Windows::at(int64_t id) const {
  const int64_t history = id / per_history_, offset = id % per_history_;
  const auto task = static_cast<size_t>(tasks_[static_cast<size_t>(history / histories_.streams())]);
  const auto steps = histories_.at(static_cast<int64_t>(task), history % histories_.streams());
  if (!compressed_) return Standard(steps, offset);
  if (every_) return Compressed(steps, offset, 0, kRolloutSteps, rooms_[task].start);
  const int64_t region = offset / (kRolloutSteps + 1), k = offset % (kRolloutSteps + 1);
  return Compressed(steps, region, k, k, rooms_[task].start);
}

Window Windows::Standard(std::span<const Transition> history, int64_t start) const {
  Window window;
  for (int64_t i = 0; i < transitions_; ++i)
    window.rows.push_back({kTransitionToken, &history[static_cast<size_t>(start + i)]});
  for (int64_t i = every_ ? 0 : transitions_; i <= transitions_; ++i) {
    const Transition& next = history[static_cast<size_t>(start + i)];
    window.queries.push_back({StateOf(next), static_cast<int32_t>(i), next.action, kIgnored});
  }
  return window;
}

Window Windows::Compressed(std::span<const Transition> history, int64_t region, int64_t from, int64_t to,
                           Cell start) const {
  Window window;
  auto add_region = [&](int64_t first, int64_t count) {
    window.rows.push_back({kStartToken, nullptr});
    for (int64_t i = 0; i < count; ++i)
      window.rows.push_back({kTransitionToken, &history[static_cast<size_t>(first + i)]});
  };
  const int64_t begin = region * kRolloutSteps;
  if (region > 0) {
    add_region(begin - kRolloutSteps, kRolloutSteps);
    window.rows.push_back({kEndToken, nullptr});
  }
  const auto before = static_cast<int32_t>(window.rows.size()) + 1;
  add_region(begin, to);
  for (int64_t k = from; k <= to; ++k) {
    const auto visible = static_cast<int32_t>(before + k);
    if (k < kRolloutSteps) {
      const Transition& next = history[static_cast<size_t>(begin + k)];
      window.queries.push_back({StateOf(next), visible, next.action, 0});
    } else {
      window.queries.push_back(
          {StateAfter(history, static_cast<size_t>(begin + k - 1), start), visible, kIgnored, kEndToken});
    }
  }
  return window;
}

}  // namespace trainyard::ad
