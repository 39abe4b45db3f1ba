#include "trainer/task/algorithm_distillation/in_context.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/softmax.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "trainer/task/algorithm_distillation/distillation_batch.h"

namespace trainyard::ad {

namespace {

Window::Query QueryOf(Cell state, size_t visible) {
  return {state.row * kGridSize + state.column, static_cast<int32_t>(visible), kIgnored, kIgnored};
}

}  // namespace

Player::Player(const Transformer& model, Weights& weights, const std::vector<DarkRoom>& tasks,
               std::span<const SeatId> seats, const PlayerOptions& options)
    : model_(model), weights_(weights), options_(options) {
  for (const SeatId& seat : seats) {
    const uint64_t index = static_cast<uint64_t>(seat.task) << 32 | static_cast<uint32_t>(seat.play);
    const DarkRoom& room = tasks[static_cast<size_t>(seat.task)];
    seats_.push_back({room, KeyedRandom(options.seed, "in_context", index), {}, {}, room.start});
  }
}

Window Player::Look(const Seat& seat) const {
  Window window;
  auto add_region = [&](const std::vector<Transition>& steps) {
    for (const Transition& step : steps) window.rows.push_back({kTransitionToken, &step});
  };
  if (options_.compressed) {
    if (!seat.previous.empty()) {
      window.rows.push_back({kStartToken, nullptr});
      add_region(seat.previous);
      window.rows.push_back({kEndToken, nullptr});
    }
    window.rows.push_back({kStartToken, nullptr});
  }
  add_region(seat.current);
  window.queries.push_back(QueryOf(seat.state, window.rows.size()));
  return window;
}

std::vector<int> Player::ChooseActions() {
  const c10::InferenceMode inference;
  // A second look after a region was closed: the token </c> is an output of its own, not an action.
  for (bool may_close = options_.compressed;; may_close = false) {
    std::vector<Window> windows;
    for (const Seat& seat : seats_) windows.push_back(Look(seat));
    DistillationBatch batch;
    FillBatch(windows, batch);
    const TransformerOutput output = model_.Forward(Pass::Evaluation(weights_), batch.input);
    bool closed = false;
    if (may_close) {
      const at::Tensor types = output.types.select(1, 0).argmax(-1).cpu().contiguous();
      for (size_t i = 0; i < seats_.size(); ++i) {
        Seat& seat = seats_[i];
        const bool full = static_cast<int>(seat.current.size()) >= kRolloutSteps;
        if (seat.current.empty() || (types.data_ptr<int64_t>()[i] != kEndToken && !full)) continue;
        seat.previous = std::move(seat.current);
        seat.current.clear();
        closed = true;
      }
    }
    if (closed) continue;
    const at::Tensor p = output.actions.select(1, 0).softmax(-1).cpu().contiguous();
    std::vector<int> actions;
    for (size_t i = 0; i < seats_.size(); ++i) {
      const float* row = p.data_ptr<float>() + i * kNumActions;
      float u = seats_[i].random.Uniform();
      seats_[i].lost = seats_[i].lost || !std::isfinite(std::accumulate(row, row + kNumActions, 0.0f));
      int action = 0;
      while (action < kNumActions - 1 && (u -= row[action]) >= 0) ++action;
      actions.push_back(action);
    }
    return actions;
  }
}

void Player::Remember(Seat& seat, const Transition& step) const {
  seat.current.push_back(step);
  if (!options_.compressed && static_cast<int64_t>(seat.current.size()) > options_.max_transitions)
    seat.current.erase(seat.current.begin());
}

std::vector<double> Player::PlayEpisode() {
  std::vector<double> returns(seats_.size(), 0);
  for (Seat& seat : seats_) seat.state = seat.room.start;
  for (int t = 0; t < kHorizon && !seats_.empty(); ++t) {
    const std::vector<int> actions = ChooseActions();
    for (size_t i = 0; i < seats_.size(); ++i) {
      Seat& seat = seats_[i];
      const Cell after = seat.room.Step(seat.state, actions[i]);
      const double reward = seat.room.Reward(after);
      Remember(seat, {static_cast<uint8_t>(seat.state.row), static_cast<uint8_t>(seat.state.column),
                      static_cast<uint8_t>(actions[i]), static_cast<uint8_t>(reward), static_cast<uint8_t>(after.row),
                      static_cast<uint8_t>(after.column), static_cast<uint8_t>(t == kHorizon - 1), 0});
      seat.state = after;
      returns[i] += reward;
    }
  }
  for (size_t i = 0; i < seats_.size(); ++i) {
    if (seats_[i].lost) returns[i] = std::numeric_limits<double>::quiet_NaN();
  }
  return returns;
}

Policy PolicyWithoutHistory(const Transformer& model, Weights& weights, bool compressed) {
  const c10::InferenceMode inference;
  Window window;
  if (compressed) window.rows.push_back({kStartToken, nullptr});
  for (int s = 0; s < kNumStates; ++s)
    window.queries.push_back(QueryOf({s / kGridSize, s % kGridSize}, window.rows.size()));
  DistillationBatch batch;
  FillBatch(std::span(&window, 1), batch);
  const at::Tensor p = model.Forward(Pass::Evaluation(weights), batch.input).actions.softmax(-1).cpu().contiguous();
  Policy policy;
  for (size_t s = 0; s < policy.size(); ++s)
    std::copy_n(p.data_ptr<float>() + s * kNumActions, kNumActions, policy[s].begin());
  return policy;
}

}  // namespace trainyard::ad
