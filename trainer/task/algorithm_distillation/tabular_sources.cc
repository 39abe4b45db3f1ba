#include <algorithm>
#include <array>
#include <vector>

#include "trainer/base/random.h"
#include "trainer/task/algorithm_distillation/sources.h"

namespace trainyard::ad {
namespace {

Transition Record(const DarkRoom& room, Cell state, int action, int64_t t) {
  const Cell after = room.Step(state, action);
  return {static_cast<uint8_t>(state.row),
          static_cast<uint8_t>(state.column),
          static_cast<uint8_t>(action),
          static_cast<uint8_t>(room.Reward(after)),
          static_cast<uint8_t>(after.row),
          static_cast<uint8_t>(after.column),
          static_cast<uint8_t>(t % kHorizon == kHorizon - 1),
          MarkerAt(t)};
}

Cell Next(const DarkRoom& room, const Transition& step) {
  return step.done ? room.start : Cell{step.next_row, step.next_column};
}

// Falls linearly from 1 to 0 over the first `share` of the steps.
double Epsilon(int64_t t, int64_t length, double share) {
  return std::max(0.0, 1.0 - static_cast<double>(t) / (share * static_cast<double>(length)));
}

using QTable = std::array<std::array<double, kNumActions>, kNumStates>;

int Greedy(const std::array<double, kNumActions>& values, KeyedRandom& random) {
  const double best = *std::max_element(values.begin(), values.end());
  std::array<int, kNumActions> ties{};
  int count = 0;
  for (int a = 0; a < kNumActions; ++a) {
    if (values[static_cast<size_t>(a)] == best) ties[static_cast<size_t>(count++)] = a;
  }
  return ties[random.Below(static_cast<uint64_t>(count))];
}

void LearnFrom(const std::vector<std::vector<Transition>>& streams, int64_t begin, int64_t end, QTable& q) {
  constexpr double kAlpha = 0.1, kGamma = 0.9;
  for (int pass = 0; pass < 3; ++pass) {
    for (int64_t t = begin; t < end; ++t) {
      for (const auto& stream : streams) {
        const Transition& step = stream[static_cast<size_t>(t)];
        const auto& next = q[static_cast<size_t>(step.next_row * kGridSize + step.next_column)];
        double& value = q[static_cast<size_t>(step.row * kGridSize + step.column)][step.action];
        // An episode ends because time is up, not because of its state: the value goes on behind it.
        const double target = step.reward + kGamma * *std::max_element(next.begin(), next.end());
        value += kAlpha * (target - value);
      }
    }
  }
}

}  // namespace

void SharedTableQ(const DarkRoom& room, int64_t task, uint64_t seed, Histories& histories, const StepsPlayed& played) {
  const int64_t length = histories.length();
  const auto num_streams = static_cast<size_t>(std::max<int64_t>(50, histories.streams()));
  std::vector<std::vector<Transition>> streams(num_streams, std::vector<Transition>(static_cast<size_t>(length)));
  std::vector<Cell> states(num_streams, room.start);
  std::vector<KeyedRandom> random;
  for (size_t s = 0; s < num_streams; ++s)
    random.emplace_back(HashKey(seed, s), "shared_q", static_cast<uint64_t>(task));
  QTable q{};
  for (int64_t t = 0; t < length; ++t) {
    const double epsilon = Epsilon(t, length, 0.7);
    for (size_t s = 0; s < num_streams; ++s) {
      const Cell state = states[s];
      const bool explore = random[s].UniformDouble() < epsilon;
      const int action = explore ? static_cast<int>(random[s].Below(kNumActions))
                                 : Greedy(q[static_cast<size_t>(state.row * kGridSize + state.column)], random[s]);
      streams[s][static_cast<size_t>(t)] = Record(room, state, action, t);
      states[s] = Next(room, streams[s][static_cast<size_t>(t)]);
    }
    if ((t + 1) % kRolloutSteps == 0) LearnFrom(streams, t + 1 - kRolloutSteps, t + 1, q);
  }
  for (int64_t s = 0; s < histories.streams(); ++s) {
    std::copy(streams[static_cast<size_t>(s)].begin(), streams[static_cast<size_t>(s)].end(),
              histories.at(task, s).begin());
  }
  played(length);
}

void AdEpsilon(const DarkRoom& room, int64_t task, uint64_t seed, Histories& histories, const StepsPlayed& played) {
  for (int64_t s = 0; s < histories.streams(); ++s) {
    KeyedRandom random(HashKey(seed, static_cast<uint64_t>(s)), "ad_epsilon", static_cast<uint64_t>(task));
    Cell state = room.start;
    for (int64_t t = 0; t < histories.length(); ++t) {
      const bool explore = random.UniformDouble() < Epsilon(t, histories.length(), 0.9);
      const int action = explore ? static_cast<int>(random.Below(kNumActions)) : room.OptimalAction(state);
      Transition& step = histories.at(task, s)[static_cast<size_t>(t)];
      step = Record(room, state, action, t);
      state = Next(room, step);
    }
  }
  played(histories.length());
}

}  // namespace trainyard::ad
