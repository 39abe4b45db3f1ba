// Dark Room: a 9 x 9 grid, 20 steps, reward 1 whenever the state after a step is the goal
// (Laskin et al., arXiv 2210.14215). The permuted variant fixes the goal and permutes the actions.
#ifndef TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_DARK_ROOM_H_
#define TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_DARK_ROOM_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trainyard::ad {

constexpr int kGridSize = 9;
constexpr int kHorizon = 20;
constexpr int kNumActions = 5;  // 0 row+1, 1 row-1, 2 column+1, 3 column-1, 4 stay
constexpr int kNumStates = kGridSize * kGridSize;

struct Cell {
  int row = 0, column = 0;
  bool operator==(const Cell&) const = default;
};

// One task: where the goal lies and what each action does.
struct DarkRoom {
  Cell start{4, 4};
  Cell goal;
  std::array<int, kNumActions> meaning{0, 1, 2, 3, 4};  // meaning[action] is the move it makes

  // The state after `action` in [0, kNumActions), clipped to the grid.
  Cell Step(Cell state, int action) const;
  double Reward(Cell after) const { return after == goal ? 1 : 0; }
  // Rows first, then columns, then stay.
  int OptimalAction(Cell state) const;
  // Return of the optimal policy over kHorizon steps.
  double OptimalReturn() const;
};

// The tasks of an environment and the fixed split into training and held-out ones.
struct TaskSet {
  std::vector<DarkRoom> tasks;
  std::vector<int> train, test;  // indices into tasks
};

// "darkroom": task i has goal (i / 9, i % 9). "darkroom_permuted": start (0,0), goal (8,8), task i
// the i-th permutation of the actions in lexicographic order. REQUIRES: one of these names.
TaskSet MakeTaskSet(const std::string& env);

// Probability of each action in each state (9 row + column).
using Policy = std::array<std::array<double, kNumActions>, kNumStates>;

// Mean return of one episode of a policy without memory, exactly (dynamic programming).
double ExpectedReturn(const DarkRoom& task, const Policy& policy);
// The same for uniformly random actions.
double RandomReturn(const DarkRoom& task);

}  // namespace trainyard::ad

#endif  // TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_DARK_ROOM_H_
