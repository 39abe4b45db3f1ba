// In-context evaluation: the frozen policy plays the held-out tasks for many episodes and improves,
// if it does, through its context alone.
#ifndef TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_IN_CONTEXT_H_
#define TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_IN_CONTEXT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/base/random.h"
#include "trainer/task/algorithm_distillation/dark_room.h"
#include "trainer/task/algorithm_distillation/transformer.h"
#include "trainer/task/algorithm_distillation/windows.h"

namespace trainyard::ad {

struct PlayerOptions {
  bool compressed = false;
  int64_t max_transitions = 79;  // of the sliding window in standard mode
  uint64_t seed = 0;
};

// A held-out task and which of its independent plays this is.
struct SeatId {
  int task, play;
};

// Plays several seats in lockstep, one forward for all. Each seat's actions are drawn from its own
// generator, keyed by (seed, task, play). Which seats play together decides no draw; it may decide
// the last bits of the probabilities, since a matrix product's rounding depends on its shape.
class Player {
 public:
  // `tasks` are all the environment's, indexed by SeatId::task.
  Player(const Transformer& model, Weights& weights, const std::vector<DarkRoom>& tasks, std::span<const SeatId> seats,
         const PlayerOptions& options);
  // Plays the next episode of every seat; returns their returns, NaN of one whose probabilities were none.
  std::vector<double> PlayEpisode();

 private:
  struct Seat {
    DarkRoom room;
    KeyedRandom random;
    std::vector<Transition> previous, current;  // regions; standard mode uses `current` as its window
    Cell state;
    bool lost = false;  // the model gave no probabilities: what follows is no play of its own
  };
  Window Look(const Seat& seat) const;
  std::vector<int> ChooseActions();
  void Remember(Seat& seat, const Transition& step) const;

  const Transformer& model_;
  Weights& weights_;
  PlayerOptions options_;
  std::vector<Seat> seats_;
};

// The control: how the model acts when its context is emptied before every action. Nothing is left but
// the state, so this is a policy without memory.
Policy PolicyWithoutHistory(const Transformer& model, Weights& weights, bool compressed);

}  // namespace trainyard::ad

#endif  // TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_IN_CONTEXT_H_
