#include "trainer/task/algorithm_distillation/dark_room.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

namespace trainyard::ad {
namespace {

// The original's split: Python's random.seed(0) and random.shuffle of the task indices, cut at 90 %.
// Its order is shipped because reproducing it would need Python's generator.
constexpr int kDarkRoomOrder[] = {24, 48, 26, 75, 9,  76, 29, 44, 37, 60, 1,  11, 42, 8,  23, 47, 69, 41, 10, 34, 56,
                                  14, 66, 59, 67, 7,  63, 52, 2,  50, 74, 80, 15, 55, 31, 73, 25, 78, 0,  71, 3,  16,
                                  77, 28, 58, 79, 13, 40, 39, 20, 70, 22, 72, 35, 30, 21, 43, 54, 57, 4,  46, 6,  19,
                                  18, 32, 12, 68, 36, 17, 64, 27, 45, 61, 38, 51, 62, 65, 33, 5,  53, 49};
constexpr int kPermutedOrder[] = {
    57,  103, 99, 3,   111, 59, 73, 22, 30, 25,  47,  69, 23,  67,  75, 16,  85, 29,  2,  76, 8,   107, 43, 84,
    98,  44,  46, 115, 80,  37, 10, 24, 48, 50,  104, 93, 13,  52,  21, 112, 72, 91,  35, 19, 6,   102, 95, 20,
    118, 114, 28, 34,  54,  88, 94, 15, 14, 109, 58,  83, 4,   81,  82, 41,  31, 86,  63, 0,  110, 11,  1,  92,
    7,   116, 66, 56,  119, 70, 26, 78, 40, 55,  105, 89, 71,  60,  42, 87,  9,  117, 39, 18, 77,  90,  68, 32,
    79,  12,  96, 101, 36,  17, 64, 27, 74, 45,  61,  38, 106, 100, 51, 62,  65, 33,  5,  53, 113, 97,  49, 108};
constexpr size_t kDarkRoomTrain = 73, kPermutedTrain = 108;

TaskSet Split(std::vector<DarkRoom> tasks, std::span<const int> order, size_t train) {
  TaskSet set{std::move(tasks), {}, {}};
  set.train.assign(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(train));
  set.test.assign(order.begin() + static_cast<std::ptrdiff_t>(train), order.end());
  return set;
}

}  // namespace

Cell DarkRoom::Step(Cell state, int action) const {
  switch (meaning[static_cast<size_t>(action)]) {
    case 0:
      ++state.row;
      break;
    case 1:
      --state.row;
      break;
    case 2:
      ++state.column;
      break;
    case 3:
      --state.column;
      break;
    default:
      break;
  }
  return {std::clamp(state.row, 0, kGridSize - 1), std::clamp(state.column, 0, kGridSize - 1)};
}

int DarkRoom::OptimalAction(Cell state) const {
  int move = 4;
  if (state.row != goal.row) {
    move = state.row < goal.row ? 0 : 1;
  } else if (state.column != goal.column) {
    move = state.column < goal.column ? 2 : 3;
  }
  return static_cast<int>(std::find(meaning.begin(), meaning.end(), move) - meaning.begin());
}

double DarkRoom::OptimalReturn() const {
  const int distance = std::abs(goal.row - start.row) + std::abs(goal.column - start.column);
  return std::clamp(kHorizon + 1 - distance, 0, kHorizon);
}

TaskSet MakeTaskSet(const std::string& env) {
  std::vector<DarkRoom> tasks;
  if (env == "darkroom") {
    for (int i = 0; i < kNumStates; ++i) tasks.push_back({.goal = {i / kGridSize, i % kGridSize}});
    return Split(std::move(tasks), kDarkRoomOrder, kDarkRoomTrain);
  }
  std::array<int, kNumActions> permutation{0, 1, 2, 3, 4};
  do {
    tasks.push_back({.start = {0, 0}, .goal = {8, 8}, .meaning = permutation});
  } while (std::next_permutation(permutation.begin(), permutation.end()));
  return Split(std::move(tasks), kPermutedOrder, kPermutedTrain);
}

double ExpectedReturn(const DarkRoom& task, const Policy& policy) {
  std::array<double, kNumStates> probability{};
  probability[static_cast<size_t>(task.start.row * kGridSize + task.start.column)] = 1;
  double total = 0;
  for (int step = 0; step < kHorizon; ++step) {
    std::array<double, kNumStates> next{};
    for (int s = 0; s < kNumStates; ++s) {
      for (int a = 0; a < kNumActions; ++a) {
        const Cell after = task.Step({s / kGridSize, s % kGridSize}, a);
        next[static_cast<size_t>(after.row * kGridSize + after.column)] +=
            probability[static_cast<size_t>(s)] * policy[static_cast<size_t>(s)][static_cast<size_t>(a)];
      }
    }
    probability = next;
    total += probability[static_cast<size_t>(task.goal.row * kGridSize + task.goal.column)];
  }
  return total;
}

double RandomReturn(const DarkRoom& task) {
  Policy uniform;
  for (auto& actions : uniform) actions.fill(1.0 / kNumActions);
  return ExpectedReturn(task, uniform);
}

}  // namespace trainyard::ad
