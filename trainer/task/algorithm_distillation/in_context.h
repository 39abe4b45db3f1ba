// In-context evaluation: the frozen policy plays the held-out tasks for many episodes and improves,
// if it does, through its context alone.
#ifndef TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_IN_CONTEXT_H_
#define TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_IN_CONTEXT_H_

#include <cstdint>
#include <vector>

#include "trainer/base/random.h"
#include "trainer/task/algorithm_distillation/dark_room.h"
#include "trainer/task/algorithm_distillation/transformer.h"
#include "trainer/task/algorithm_distillation/windows.h"

namespace trainyard::ad {

struct PlayerOptions {
  bool compressed = false;
  bool history = true;           // false: the control, whose context is emptied before every action
  int64_t max_transitions = 79;  // of the sliding window in standard mode
  uint64_t seed = 0;
};

// Plays several rooms in lockstep, one forward for all. Each room's actions are drawn from its own
// generator, keyed by (seed, room's id), so they do not depend on which rooms play together.
class Player {
 public:
  // `ids` are the rooms' task numbers.
  Player(const Transformer& model, std::vector<DarkRoom> rooms, const std::vector<int>& ids,
         const PlayerOptions& options);
  // Plays the next episode of every room; returns their returns.
  std::vector<double> PlayEpisode();

 private:
  struct Seat {
    DarkRoom room;
    KeyedRandom random;
    std::vector<Transition> previous, current;  // regions; standard mode uses `current` as its window
    Cell state;
  };
  Window Look(const Seat& seat) const;
  std::vector<int> ChooseActions();
  void Remember(Seat& seat, const Transition& step) const;

  const Transformer& model_;
  PlayerOptions options_;
  std::vector<Seat> seats_;
};

}  // namespace trainyard::ad

#endif  // TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_IN_CONTEXT_H_
