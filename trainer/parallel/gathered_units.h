// Puts a unit's parameters together while it computes, and lets them go (ZeRO 3: Rajbhandari et al., arXiv 1910.02054).
//
// The collectives of a step are one fixed sequence. What it is the ranks find out together in their first micro-batch,
// in which they ask for each unit before it is gathered; from then on the next one comes while one computes, and a
// rank that opens another one is refused. Forwards outside of a step ask as well, since no rank knows how many the
// others make.
//
// Autograd keeps the leaves of a unit for backward, and they have memory again when it comes to them: a node of the
// graph behind the unit's result gathers, one in front of its inputs lets go.
#ifndef TRAINYARD_TRAINER_PARALLEL_GATHERED_UNITS_H_
#define TRAINYARD_TRAINER_PARALLEL_GATHERED_UNITS_H_

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainer/comm/collectives.h"
#include "trainer/model/pass.h"
#include "trainer/parallel/flat_state.h"
#include "trainer/parallel/unit_schedule.h"

namespace trainyard {

// What else has its places in the sequence.
struct UnitNeighbours {
  // The gradients of the first so many buckets are whole.
  std::function<void(size_t)> buckets_are_whole;
  // This rank takes part in the next gather, forward's or backward's, with no rows.
  std::function<void()> take_part_in_gather;
  // So many were made in this step.
  std::function<size_t()> gathers_made;
};

// Used by one thread. Everything must outlive it, and it every graph that was made through it.
//   BeginStep; for each micro-batch { Run, RunGather; EndForward; backward; EndBackward }; EndStep
class GatheredUnits {
 public:
  // REQUIRES: state.units(); `buckets` are the layout's, in the order in which they are sent.
  GatheredUnits(FlatState& state, Collectives& collectives, std::vector<std::string> names,
                const std::vector<Range>& buckets, UnitNeighbours neighbours);

  // `micro_batches`: of the rank that has most of them.
  void BeginStep(int64_t micro_batches);
  // fn(inputs), with the unit's parameters at hand, also in backward. Throws std::logic_error for a unit within another
  // one, and for one that is not the next.
  at::Tensor Run(UnitId unit, const UnitFunction& fn, at::TensorList inputs);
  // fn({x}), a Pass::Gather, when its turn has come; as well in backward.
  at::Tensor RunGather(GatherId id, const UnitFunction& fn, const at::Tensor& x);
  // Behind a micro-batch's forward, before its loss's backward. `whole`: this rank has made all of it. On one that has
  // not, it takes part in what is left.
  void EndForward(bool whole);
  // Behind its backward, also where there was none, or one that failed.
  void EndBackward();
  void EndStep() { in_step_ = false; }
  // After forwards outside of a step, however many a rank made: returns when every rank has called it.
  void EndForwards();

 private:
  struct Slot {
    std::optional<UnitId> unit;
    std::optional<Collectives::Ticket> coming;
  };

  at::Tensor RunUse(ScheduledUse use, const UnitFunction& fn, at::TensorList inputs);
  std::string NameOf(ScheduledUse use) const;
  bool Trains(UnitId unit) const { return !pieces_of_[static_cast<size_t>(unit.index)].empty(); }

  // What every rank asks for: a use's code, or a number below 0; in rank order.
  std::vector<int64_t> Ask(int64_t wanted);
  void RunAsked(ScheduledUse use, bool learning);
  // Notes what is asked for, or in `refusal_` that ranks ask for different things.
  void RecordAsked(const std::vector<int64_t>& asked);
  // Once for a micro-batch: who was refused at its end takes part in its rest no more.
  void LearnRest(bool whole);
  void TakePart(ScheduledUse use);
  // Takes part in a gather whose turn had come, and which has failed before it was made.
  void PayGather();

  // The sequence. A place is entered when its unit is at hand, or its gather may be made, and left when that is over.
  void Enter();
  void Leave();
  // Takes part in what this rank leaves out of a place, and leaves it.
  void PassOver();
  void GoTo(size_t place);
  std::optional<ScheduledUse> Next() const;  // behind `place_`

  void Issue(UnitId unit);
  void Await(UnitId unit);
  void Release(UnitId unit);
  void ReleaseAll();

  FlatState& state_;
  Collectives& collectives_;
  const std::vector<std::string> names_;
  std::vector<std::vector<size_t>> pieces_of_;  // of each unit: the pieces of what is owned, one for each bucket
  std::vector<Range> buckets_;                  // ascending, as those pieces
  std::vector<UnitId> bucket_units_;            // in sending order
  const UnitNeighbours neighbours_;
  std::array<Slot, UnitMemory::kSlots> slots_;
  std::optional<UnitSchedule> schedule_;
  std::vector<ScheduledUse> learned_;  // of the first micro-batch, so far
  std::string refusal_;                // of it
  bool rest_learned_ = false;          // of the micro-batch that runs
  std::optional<ScheduledUse> running_;
  bool in_step_ = false, entered_ = false;
  std::optional<size_t> owed_;  // gathers that were made before the one whose turn it is
  int64_t micro_batch_ = 0, micro_batches_ = 0;
  size_t place_ = 0;  // the one that is entered, or the next one
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_PARALLEL_GATHERED_UNITS_H_
