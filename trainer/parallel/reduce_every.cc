#include "trainer/parallel/reduce_every.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

#include "trainer/base/text.h"
#include "trainer/parallel/reduce_last.h"

namespace trainyard {

ReduceEvery::ReduceEvery(FlatState& state, Collectives& collectives, const ReducerOptions& options)
    : state_(state),
      collectives_(collectives),
      rounded_(options.bf16 && collectives.size() > 1 ? state.layout().LargestBucket(options.bucket_bytes) : 0,
               state.device()),
      hooks_(state.leaves(), [this](size_t parameter, const at::Tensor& g) { Arrived(parameter, g); }) {
  const FlatLayout& layout = state_.layout();
  const std::vector<Range> ranges = layout.Buckets(options.bucket_bytes);
  for (const Range range : ranges) buckets_.push_back({.range = range, .parameters = {}});
  buckets_of_ = BucketsOf(layout, ranges);
  for (size_t p = 0; p < buckets_of_.size(); ++p) {
    for (const size_t b : buckets_of_[p]) buckets_[b].parameters.push_back(p);
  }
  const int64_t size = layout.LargestBucket(options.bucket_bytes);
  for (at::Tensor& slot : slots_) slot = at::zeros({size}, state_.gradient.options());
  came_.resize(buckets_of_.size());
  left_to_put_.resize(buckets_of_.size());
}

int64_t ReduceEvery::SlotBytes(const FlatLayout& layout, int64_t bucket_bytes) {
  return layout.LargestBucket(bucket_bytes) * static_cast<int64_t>(kSlots * sizeof(float));
}

void ReduceEvery::BeginStep() {
  rounds_ = retired_ = sent_ = opened_ = 0;
  held_ = false;
  BeginRound();
}

void ReduceEvery::BeginRound() {
  arrived_.assign(came_.size(), false);
  std::ranges::fill(came_, at::Tensor());
  for (Bucket& bucket : buckets_) bucket.waiting = bucket.parameters.size();
}

void ReduceEvery::Hold(bool held) {
  held_ = held;
  if (!held_) Advance(0);
}

void ReduceEvery::Arrived(size_t parameter, const at::Tensor& gradient) {
  const auto was_sent = [&](size_t bucket) { return rounds_ * buckets_.size() + bucket < sent_; };
  if (arrived_[parameter] || std::ranges::any_of(buckets_of_[parameter], was_sent))
    RefuseGradient(state_.layout().parameters()[parameter]);
  arrived_[parameter] = true;
  came_[parameter] = gradient;
  left_to_put_[parameter] = buckets_of_[parameter].size();
  for (const size_t b : buckets_of_[parameter]) {
    --buckets_[b].waiting;
    if (rounds_ * buckets_.size() + b < opened_) Put(b, parameter);
  }
  Advance(0);
}

void ReduceEvery::Advance(size_t through) {
  const size_t begin = rounds_ * buckets_.size(), end = begin + buckets_.size();
  for (;;) {
    if (sent_ < opened_ && (sent_ - begin < through || (!held_ && buckets_[sent_ - begin].waiting == 0))) {
      Send();
    } else if (opened_ < end && opened_ < retired_ + kSlots) {
      Open();
    } else if (retired_ < sent_ && opened_ < end && (opened_ - begin < through || Needed(opened_ - begin))) {
      Retire();
    } else {
      return;
    }
  }
}

bool ReduceEvery::Needed(size_t bucket) const {
  return std::ranges::any_of(buckets_[bucket].parameters, [&](size_t p) { return came_[p].defined(); });
}

void ReduceEvery::Open() {
  const size_t b = opened_ % buckets_.size();
  Slot(opened_).zero_();  // also the padding, and what gets no gradient
  ++opened_;
  for (const size_t p : buckets_[b].parameters) {
    if (came_[p].defined()) Put(b, p);
  }
}

void ReduceEvery::Put(size_t bucket, size_t parameter) {
  const Range of = state_.layout().range(parameter), in = buckets_[bucket].range;
  const int64_t begin = std::max(of.begin, in.begin), size = std::min(of.end, in.end) - begin;
  const at::Tensor slot = Slot(rounds_ * buckets_.size() + bucket);
  // Added to the zeros of Open: in bfloat16 the same as in ReduceLast, and a float32's -0 stays one there as well.
  AddGradient(state_.device(), came_[parameter].narrow(0, begin - of.begin, size),
              slot.narrow(0, begin - in.begin, size), came_[parameter].scalar_type() == at::kFloat);
  if (--left_to_put_[parameter] == 0) came_[parameter].reset();
}

void ReduceEvery::Send() {
  if (rounded_.used()) rounded_.Round(sent_, Slot(sent_));
  tickets_[sent_ % kSlots] = collectives_.ReduceScatter(
      Sent(sent_), MineOf(sent_), Format("bucket %zu of micro-batch %zu", sent_ % buckets_.size(), rounds_ + 1));
  ++sent_;
}

void ReduceEvery::Retire() {
  collectives_.Wait(tickets_[retired_ % kSlots]);
  // What is owned is ascending, buckets are not.
  const OwnedPiece& piece = state_.owned()[buckets_.size() - 1 - retired_ % buckets_.size()];
  const at::Tensor shard = state_.gradient.narrow(0, piece.at, piece.flat.size());
  AddGradient(state_.device(), MineOf(retired_), shard, retired_ < buckets_.size());
  ++retired_;
}

at::Tensor ReduceEvery::Slot(size_t number) const {
  return slots_[number % kSlots].narrow(0, 0, buckets_[number % buckets_.size()].range.size());
}

at::Tensor ReduceEvery::Sent(size_t number) const {
  const at::Tensor slot = Slot(number);
  return rounded_.used() ? rounded_.Of(number, slot.numel()) : slot;
}

at::Tensor ReduceEvery::MineOf(size_t number) const {
  const at::Tensor sent = Sent(number);
  const int64_t share = sent.numel() / collectives_.size();
  return sent.narrow(0, collectives_.rank() * share, share);
}

void ReduceEvery::EndBackward() {
  size_t done = retired_;
  while (done < sent_ && collectives_.Done(tickets_[done % kSlots])) ++done;
  overlap_ = static_cast<double>(done) / static_cast<double>((rounds_ + 1) * buckets_.size());
  Advance(buckets_.size());
  ++rounds_;
  BeginRound();
}

void ReduceEvery::Finish() {
  while (retired_ < sent_) Retire();
}

void ReduceEvery::Drain() {
  hooks_.Forget();
  std::ranges::fill(came_, at::Tensor());
}

}  // namespace trainyard
