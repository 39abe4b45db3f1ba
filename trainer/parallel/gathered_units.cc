#include "trainer/parallel/gathered_units.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "trainer/base/text.h"
#include "trainer/parallel/unit_border.h"

namespace trainyard {
namespace {

// What a rank asks for: a use; none, since its forward has failed or there is none; none, since it has made all of it.
int64_t CodeOf(ScheduledUse use) { return 2 * int64_t{use.index} + (use.is_gather ? 1 : 0); }
constexpr int64_t kNoMore = -1, kWhole = -2;
bool IsUse(int64_t code) { return code >= 0; }
ScheduledUse UseOf(int64_t code) { return {.is_gather = code % 2 == 1, .index = static_cast<int32_t>(code / 2)}; }

// Of what is asked for, what has its turn: the same on every rank.
std::optional<ScheduledUse> FirstAsked(const std::vector<int64_t>& asked) {
  std::optional<int64_t> first;
  for (const int64_t code : asked) {
    if (IsUse(code)) first = std::min(first.value_or(code), code);
  }
  return first ? std::optional(UseOf(*first)) : std::nullopt;
}

}  // namespace

GatheredUnits::GatheredUnits(FlatState& state, Collectives& collectives, std::vector<std::string> names,
                             const std::vector<Range>& buckets, UnitNeighbours neighbours)
    : state_(state),
      collectives_(collectives),
      names_(std::move(names)),
      pieces_of_(names_.size()),
      buckets_(buckets.rbegin(), buckets.rend()),
      neighbours_(std::move(neighbours)) {
  for (const UnitRun& run : state_.layout().runs()) {
    for (size_t i = 0; i < buckets_.size(); ++i) {
      if (buckets_[i].begin < run.range.begin || buckets_[i].begin >= run.range.end) continue;
      pieces_of_[static_cast<size_t>(run.unit.index)].push_back(i);
      bucket_units_.push_back(run.unit);
    }
  }
  std::ranges::reverse(bucket_units_);  // runs are ascending, and so were their buckets
}

std::string GatheredUnits::NameOf(ScheduledUse use) const {
  return use.is_gather ? Format("gather %d", use.index) : "the unit " + names_[static_cast<size_t>(use.index)];
}

void GatheredUnits::BeginStep(int64_t micro_batches) {
  in_step_ = true;
  entered_ = false;
  micro_batch_ = 0;
  micro_batches_ = micro_batches;
  place_ = 0;
  rest_learned_ = false;
  learned_.clear();
}

at::Tensor GatheredUnits::Run(UnitId unit, const UnitFunction& fn, at::TensorList inputs) {
  return Trains(unit) ? RunUse({.index = unit.index}, fn, inputs) : fn(Behind(inputs));
}

at::Tensor GatheredUnits::RunGather(GatherId id, const UnitFunction& fn, const at::Tensor& x) {
  return RunUse({.is_gather = true, .index = id.index}, fn, {x});
}

at::Tensor GatheredUnits::RunUse(ScheduledUse use, const UnitFunction& fn, at::TensorList inputs) {
  if (running_)
    throw std::logic_error(NameOf(use) + " is opened within " + NameOf(*running_) + ": zero3 has one at a time");
  const bool planned = in_step_ && schedule_.has_value();
  if (planned && (place_ >= schedule_->forward() || schedule_->at(place_) != use))
    throw std::logic_error(NameOf(use) + " is opened where the first micro-batch opened " +
                           (place_ >= schedule_->forward() ? "no more" : NameOf(schedule_->at(place_))) +
                           ": zero3 needs the same ones in the same order in each");
  const size_t place = planned ? place_ : learned_.size();
  if (planned) {
    Enter();
  } else {
    RunAsked(use, in_step_);
  }
  at::Tensor result;
  {
    struct Running {
      GatheredUnits& units;
      const bool planned;
      ~Running() {
        if (!planned && !units.running_->is_gather) units.Release(units.running_->unit());
        units.running_.reset();
      }
    } const now{*this, planned};
    running_ = use;
    result = fn(Behind(inputs, [this, place] {
      if (entered_ && place_ == schedule_->BackwardOf(place)) Leave();
    }));
  }
  result = Behind({result}, [this, place] { GoTo(schedule_->BackwardOf(place)); })[0];
  if (planned) Leave();
  return result;
}

std::vector<int64_t> GatheredUnits::Ask(int64_t wanted) {
  const auto options = at::TensorOptions(at::kLong).device(state_.device().device());
  at::Tensor all = at::empty({collectives_.size()}, options);
  collectives_.Wait(collectives_.AllGather(at::full({1}, wanted, options), all, "which unit is next"));
  all = all.cpu();
  collectives_.ThrowIfFailed();  // then nobody has filled it
  return {all.data_ptr<int64_t>(), all.data_ptr<int64_t>() + all.numel()};
}

// Ranks that want other units get them in turn; where the order is to be learned they may not.
void GatheredUnits::RunAsked(ScheduledUse use, bool learning) {
  for (;;) {
    const std::vector<int64_t> asked = Ask(CodeOf(use));
    if (learning) RecordAsked(asked);
    if (!refusal_.empty()) throw std::logic_error(refusal_);
    const ScheduledUse now = *FirstAsked(asked);
    if (now != use) {
      TakePart(now);
      continue;
    }
    if (use.is_gather) {  // the caller makes it
      owed_ = neighbours_.gathers_made();
      return;
    }
    Issue(use.unit());
    return Await(use.unit());
  }
}

void GatheredUnits::RecordAsked(const std::vector<int64_t>& asked) {
  const auto first = std::ranges::find_if(asked, IsUse);
  if (first == asked.end() || !refusal_.empty()) return;
  learned_.push_back(UseOf(*first));
  // A rank that has nothing to compute, or has failed, is none that differs.
  const auto other = std::ranges::find_if(asked, [&](int64_t code) { return code != kNoMore && code != *first; });
  if (other == asked.end()) return;
  refusal_ = Format("rank %d opens %s where rank %d opens %s: zero3 needs the same ones in the same order",
                    static_cast<int>(other - asked.begin()), IsUse(*other) ? NameOf(UseOf(*other)).c_str() : "no more",
                    static_cast<int>(first - asked.begin()), NameOf(UseOf(*first)).c_str());
}

void GatheredUnits::TakePart(ScheduledUse use) {
  if (use.is_gather) return neighbours_.take_part_in_gather();
  Issue(use.unit());
  Release(use.unit());
}

void GatheredUnits::PayGather() {
  if (owed_ && neighbours_.gathers_made() == *owed_) neighbours_.take_part_in_gather();
  owed_.reset();
}

void GatheredUnits::EndForward(bool whole) {
  if (!schedule_) return LearnRest(whole);
  if (whole && place_ < schedule_->forward())
    throw std::logic_error("a forward ends where the first micro-batch opened " + NameOf(schedule_->at(place_)) +
                           ": zero3 needs the same units in each");
  while (place_ < schedule_->forward()) PassOver();
}

void GatheredUnits::LearnRest(bool whole) {
  if (std::exchange(rest_learned_, true)) return;
  ReleaseAll();  // of a unit that failed
  PayGather();
  for (;;) {
    const std::vector<int64_t> asked = Ask(whole ? kWhole : kNoMore);
    RecordAsked(asked);
    const auto use = FirstAsked(asked);
    if (!use && refusal_.empty() && std::ranges::find(asked, kWhole) != asked.end())
      schedule_.emplace(learned_, bucket_units_);
    if (!use) break;
    if (refusal_.empty()) TakePart(*use);  // else those that asked do not, either
  }
  place_ = learned_.size();
  learned_.clear();
  const std::string refusal = std::exchange(refusal_, "");
  if (whole && !refusal.empty()) throw std::logic_error(refusal);
}

void GatheredUnits::EndBackward() {
  while (schedule_ && place_ < schedule_->places()) PassOver();
  place_ = 0;
  rest_learned_ = false;
  ++micro_batch_;
}

void GatheredUnits::EndForwards() {
  ReleaseAll();
  while (const auto use = FirstAsked(Ask(kNoMore))) TakePart(*use);
}

std::optional<ScheduledUse> GatheredUnits::Next() const {
  if (place_ + 1 < schedule_->places()) return schedule_->at(place_ + 1);
  if (micro_batch_ + 1 < micro_batches_) return schedule_->at(0);
  return std::nullopt;
}

void GatheredUnits::Enter() {
  const ScheduledUse use = schedule_->at(place_);
  if (!use.is_gather) Issue(use.unit());
  if (const auto next = Next(); next && !next->is_gather) Issue(next->unit());
  if (use.is_gather) owed_ = neighbours_.gathers_made();
  if (!use.is_gather) Await(use.unit());
  entered_ = true;
}

void GatheredUnits::Leave() {
  const ScheduledUse use = schedule_->at(place_);
  if (!use.is_gather && Next() != use) Release(use.unit());
  const size_t whole = schedule_->BucketsAfter(place_);
  owed_.reset();
  entered_ = false;
  ++place_;
  if (whole > 0) neighbours_.buckets_are_whole(whole);
}

void GatheredUnits::PassOver() {
  if (!entered_) Enter();
  PayGather();
  Leave();
}

void GatheredUnits::GoTo(size_t place) {
  while (place_ < place) PassOver();
  if (place_ > place || entered_)
    throw std::logic_error("backward comes to " + NameOf(schedule_->at(place)) + " when its turn is over");
  Enter();
}

void GatheredUnits::Issue(UnitId unit) {
  const auto holds = [&](const Slot& slot) { return slot.unit == unit; };
  if (std::ranges::any_of(slots_, holds)) return;
  const auto free = std::ranges::find_if(slots_, [](const Slot& slot) { return !slot.unit; });
  if (free == slots_.end()) throw std::logic_error("every slot for a unit is taken");
  const auto number = static_cast<size_t>(free - slots_.begin());
  const std::string name = "parameters of " + NameOf({.index = unit.index});
  for (const size_t i : pieces_of_[static_cast<size_t>(unit.index)]) {
    const OwnedPiece& piece = state_.owned()[i];
    free->coming = collectives_.AllGather(state_.parameter_shard().narrow(0, piece.at, piece.flat.size()),
                                          state_.units()->In(number, unit, buckets_[i]), name);
    free->unit = unit;
  }
}

void GatheredUnits::Await(UnitId unit) {
  const auto slot = std::ranges::find_if(slots_, [&](const Slot& s) { return s.unit == unit; });
  if (!slot->coming) return;  // it was at hand
  collectives_.Wait(*std::exchange(slot->coming, std::nullopt));
  state_.units()->Bind(static_cast<size_t>(slot - slots_.begin()), unit);
}

void GatheredUnits::Release(UnitId unit) {
  const auto slot = std::ranges::find_if(slots_, [&](const Slot& s) { return s.unit == unit; });
  if (slot->coming) collectives_.Wait(*slot->coming);
  state_.units()->Unbind(unit);
  *slot = {};
}

void GatheredUnits::ReleaseAll() {
  for (const Slot& slot : slots_) {
    if (slot.unit) Release(*slot.unit);
  }
}

}  // namespace trainyard
