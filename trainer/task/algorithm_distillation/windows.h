// Samples: what part of which history a sample id stands for, and the batch it becomes.
//
// A batch has a context of C rows, the same for every query of a sample, and Q queries, each of
// which sees a prefix of the context. In standard mode a sample is a window of n = context - 1
// transitions; the loss at every position asks after each of its prefixes, the loss at the last
// position only after the whole. In compressed mode the context is
// `<c> previous 80 transitions </c> <c> current transitions`, and a query after the region's 80th
// step must predict the token </c> instead of an action.
#ifndef TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_WINDOWS_H_
#define TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_WINDOWS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/task/algorithm_distillation/dark_room.h"
#include "trainer/task/algorithm_distillation/histories.h"
#include "trainer/task/algorithm_distillation/options.h"
#include "trainer/task/algorithm_distillation/sources.h"

namespace trainyard::ad {

constexpr int kFeatures = 10;       // state (2), action one-hot (5), reward, next state (2)
constexpr int64_t kIgnored = -100;  // a target that does not count
enum TokenKind : int64_t { kTransitionToken = 0, kStartToken = 1, kEndToken = 2 };

// One sample before it is padded into a batch.
struct Window {
  // One per context row; `step` is null for the tokens <c> and </c>.
  struct Row {
    TokenKind kind;
    const Transition* step;
  };
  struct Query {
    int state;           // 9 row + column
    int32_t visible;     // context rows it sees
    int64_t action;      // target, or kIgnored
    int64_t token_type;  // target in compressed mode (0 action, 2 </c>), or kIgnored
  };
  std::vector<Row> rows;
  std::vector<Query> queries;
};

// The windows of a set of tasks. Immutable; `histories` must outlive it.
class Windows {
 public:
  // Throws DataError when the histories are too short for one window.
  Windows(const Histories& histories, std::vector<int> tasks, std::vector<DarkRoom> rooms, const Options& options);

  int64_t size() const { return per_history_ * histories_.streams() * static_cast<int64_t>(tasks_.size()); }
  Window at(int64_t id) const;  // REQUIRES: 0 <= id < size()

 private:
  Window Standard(std::span<const Transition> history, int64_t start) const;
  Window Compressed(std::span<const Transition> history, int64_t region, int64_t from, int64_t to, Cell start) const;

  const Histories& histories_;
  std::vector<int> tasks_;
  std::vector<DarkRoom> rooms_;
  bool compressed_, every_;
  int64_t transitions_, per_history_;
};

}  // namespace trainyard::ad

#endif  // TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_WINDOWS_H_
