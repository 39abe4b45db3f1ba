#include "trainer/parallel/reduce_last.h"

#include <algorithm>

#include "trainer/base/text.h"

namespace trainyard {

ReduceLast::ReduceLast(FlatState& state, Collectives& collectives, const ReducerOptions& options)
    : state_(state),
      collectives_(collectives),
      slots_(options.bf16 && collectives.size() > 1 ? state.layout().LargestBucket(options.bucket_bytes) : 0,
             state.device()),
      hooks_(state.leaves(), [this](size_t parameter, const at::Tensor& g) { Arrived(parameter, g); }) {
  const FlatLayout& layout = state_.layout();
  const std::vector<Range> buckets = layout.Buckets(options.bucket_bytes),
                           owned = layout.Owned(collectives_.rank(), options.bucket_bytes);
  for (size_t b = 0; b < buckets.size(); ++b)
    buckets_.push_back({.range = buckets[b], .mine = state_.sharded() ? owned[b] : buckets[b]});
  buckets_of_ = BucketsOf(layout, buckets);
  for (const std::vector<size_t>& of : buckets_of_) {
    for (const size_t b : of) ++buckets_[b].parameters;
  }
}

void ReduceLast::BeginStep() {
  touched_.assign(state_.leaves().size(), false);
  arrived_.assign(state_.leaves().size(), false);
  for (Bucket& bucket : buckets_) bucket.waiting = bucket.parameters;
  next_ = retired_ = 0;
  last_ = held_ = false;
}

void ReduceLast::Hold(bool held) {
  held_ = held;
  if (!held_ && last_) SendReady(0);
}

void ReduceLast::SendThrough(size_t buckets) {
  if (last_) SendReady(buckets);
}

void ReduceLast::Arrived(size_t parameter, const at::Tensor& gradient) {
  const auto was_sent = [&](size_t bucket) { return bucket < next_; };
  if (last_ && (arrived_[parameter] || std::ranges::any_of(buckets_of_[parameter], was_sent)))
    RefuseGradient(state_.layout().parameters()[parameter]);
  const Range range = state_.layout().range(parameter);
  AddGradient(state_.device(), gradient, state_.gradient.narrow(0, range.begin, range.size()), !touched_[parameter]);
  touched_[parameter] = true;
  if (!last_) return;
  arrived_[parameter] = true;
  for (const size_t b : buckets_of_[parameter]) --buckets_[b].waiting;
  SendReady(0);
}

void ReduceLast::SendReady(size_t through) {
  for (size_t p = 0; p < touched_.size() && next_ < through; ++p) {
    const auto goes = [&](size_t bucket) { return bucket < through; };
    if (touched_[p] || !std::ranges::any_of(buckets_of_[p], goes)) continue;
    const Range range = state_.layout().range(p);
    state_.gradient.narrow(0, range.begin, range.size()).zero_();
    touched_[p] = true;
  }
  for (; next_ < buckets_.size() && (next_ < through || (!held_ && buckets_[next_].waiting == 0)); ++next_) {
    if (collectives_.size() > 1) Send(next_);
  }
}

void ReduceLast::Send(size_t number) {
  Bucket& bucket = buckets_[number];
  at::Tensor whole = state_.gradient.narrow(0, bucket.range.begin, bucket.range.size());
  if (slots_.used()) {
    if (number >= BF16Slots::kSlots) Retire(number - BF16Slots::kSlots);
    whole = slots_.Round(number, whole);
  }
  const std::string unit = Format("bucket %zu", number);
  bucket.ticket = state_.sharded()
                      ? collectives_.ReduceScatter(
                            whole, whole.narrow(0, bucket.mine.begin - bucket.range.begin, bucket.mine.size()), unit)
                      : collectives_.AllReduce(whole, unit);
}

void ReduceLast::Retire(size_t number) {
  const Bucket& bucket = buckets_[number];
  collectives_.Wait(bucket.ticket);
  retired_ = number + 1;
  if (!slots_.used()) return;
  const at::Tensor sum = slots_.Of(number, bucket.range.size());
  AddGradient(state_.device(), sum.narrow(0, bucket.mine.begin - bucket.range.begin, bucket.mine.size()),
              state_.gradient.narrow(0, bucket.mine.begin, bucket.mine.size()), true);
}

void ReduceLast::Finish() {
  if (collectives_.size() > 1) {
    size_t done = retired_;
    while (done < next_ && collectives_.Done(buckets_[done].ticket)) ++done;
    overlap_ = static_cast<double>(done) / static_cast<double>(buckets_.size());
  }
  SendReady(buckets_.size());
  if (collectives_.size() == 1) return;
  while (retired_ < buckets_.size()) Retire(retired_);
}

}  // namespace trainyard
