#include "trainer/parallel/gradient_reducer.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/kernels/kernels.h"
#include "trainer/model/parallel_for.h"

namespace trainyard {
namespace {

constexpr int64_t kElementsPerTask = 16384;  // at least

}  // namespace

struct GradientReducer::Hook : torch::autograd::PostAccumulateGradHook {
  Hook(GradientReducer* owner, size_t parameter) : owner(owner), parameter(parameter) {}
  void operator()(const at::Tensor&) override { owner->Arrived(parameter); }
  GradientReducer* owner;
  size_t parameter;
};

GradientReducer::GradientReducer(FlatState& state, Collectives& collectives, int64_t bucket_bytes)
    : state_(state), collectives_(collectives) {
  const FlatLayout& layout = state_.layout();
  const std::vector<Range> owned = layout.Owned(collectives_.rank(), bucket_bytes);
  for (const Range range : layout.Buckets(bucket_bytes))
    buckets_.push_back({.range = range, .mine = state_.sharded() ? owned[buckets_.size()] : range});
  buckets_of_.resize(layout.parameters().size());
  for (size_t p = 0; p < buckets_of_.size(); ++p) {
    const Range range = layout.range(p);
    for (size_t b = 0; b < buckets_.size(); ++b) {
      if (range.begin < buckets_[b].range.end && buckets_[b].range.begin < range.end) {
        buckets_of_[p].push_back(b);
        ++buckets_[b].parameters;
      }
    }
    torch::autograd::impl::set_post_acc_grad_hooks(state_.leaves()[p], std::make_unique<Hook>(this, p));
  }
}

GradientReducer::~GradientReducer() {
  for (const at::Tensor& leaf : state_.leaves()) {
    torch::autograd::impl::set_post_acc_grad_hooks(leaf, nullptr);
    leaf.mutable_grad().reset();
  }
}

void GradientReducer::BeginStep() {
  touched_.assign(state_.leaves().size(), false);
  arrived_.assign(state_.leaves().size(), false);
  for (Bucket& bucket : buckets_) bucket.waiting = bucket.parameters;
  next_ = 0;
  last_ = held_ = false;
}

void GradientReducer::BeginBackward(bool last) { last_ = last; }

void GradientReducer::Hold(bool held) {
  held_ = held;
  if (!held_ && last_) SendReady(false);
}

void GradientReducer::Arrived(size_t parameter) {
  if (last_ && arrived_[parameter]) {
    state_.leaves()[parameter].mutable_grad().reset();
    throw Error(ExitCode::kInternal, "a second gradient of " + state_.layout().parameters()[parameter].name +
                                         " arrived in one backward, while its bucket may be on its way");
  }
  at::Tensor& gradient = state_.leaves()[parameter].mutable_grad();
  Accumulate(parameter, gradient);
  gradient.reset();
  if (!last_) return;
  arrived_[parameter] = true;
  for (size_t b : buckets_of_[parameter]) --buckets_[b].waiting;
  SendReady(false);
}

void GradientReducer::Accumulate(size_t parameter, const at::Tensor& gradient) {
  const Range range = state_.layout().range(parameter);
  at::Tensor flat = state_.gradient.narrow(0, range.begin, range.size());
  const at::Tensor values = gradient.contiguous().view({range.size()});
  const bool first = !touched_[parameter];
  touched_[parameter] = true;
  if (values.scalar_type() == at::kFloat) {
    first ? flat.copy_(values) : flat.add_(values);
    return;
  }
  if (first) flat.zero_();
  const auto* from = reinterpret_cast<const kernels::Bf16*>(values.data_ptr());
  auto* to = flat.data_ptr<float>();
  ParallelFor(0, range.size(), kElementsPerTask,
              [&](int64_t begin, int64_t end) { kernels::Kernels().add_bf16(from + begin, to + begin, end - begin); });
}

void GradientReducer::SendReady(bool all) {
  for (; next_ < buckets_.size() && (all || (!held_ && buckets_[next_].waiting == 0)); ++next_) {
    Bucket& bucket = buckets_[next_];
    if (collectives_.size() == 1) continue;
    const at::Tensor whole = state_.gradient.narrow(0, bucket.range.begin, bucket.range.size());
    const at::Tensor mine = state_.gradient.narrow(0, bucket.mine.begin, bucket.mine.size());
    const std::string unit = Format("bucket %zu", next_);
    bucket.ticket =
        state_.sharded() ? collectives_.ReduceScatter(whole, mine, unit) : collectives_.AllReduce(whole, unit);
  }
}

void GradientReducer::Finish() {
  if (collectives_.size() > 1) {
    const auto done = std::count_if(buckets_.begin(), buckets_.begin() + static_cast<std::ptrdiff_t>(next_),
                                    [&](const Bucket& bucket) { return collectives_.Done(bucket.ticket); });
    overlap_ = static_cast<double>(done) / static_cast<double>(buckets_.size());
  }
  std::span<float> gradient = Floats(state_.gradient);
  for (size_t p = 0; p < touched_.size(); ++p) {
    if (touched_[p]) continue;
    const Range range = state_.layout().range(p);
    std::fill_n(gradient.begin() + range.begin, range.size(), 0.f);
  }
  SendReady(true);
  if (collectives_.size() == 1) return;
  for (Bucket& bucket : buckets_) collectives_.Wait(bucket.ticket);
}

void GradientReducer::Drain() {
  for (const at::Tensor& leaf : state_.leaves()) leaf.mutable_grad().reset();
  SendReady(true);
  if (collectives_.size() == 1) return;
  for (Bucket& bucket : buckets_) collectives_.Wait(bucket.ticket);
}

}  // namespace trainyard
