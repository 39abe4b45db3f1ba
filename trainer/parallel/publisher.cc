#include "trainer/parallel/publisher.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "trainer/base/text.h"

namespace trainyard {

Publisher::Publisher(FlatState& state, Collectives& collectives, int64_t bucket_bytes)
    : state_(state), collectives_(collectives) {
  if (!state_.sharded()) return;
  const FlatLayout& layout = state_.layout();
  buckets_ = layout.Buckets(bucket_bytes);
  std::ranges::reverse(buckets_);
  tickets_.resize(buckets_.size());
  awaited_ = buckets_.size();
  for (size_t p = 0; p < layout.parameters().size(); ++p) {
    const auto after = std::ranges::lower_bound(buckets_, layout.range(p).end, {}, &Range::end);
    last_bucket_.push_back(static_cast<size_t>(after - buckets_.begin()));
  }
}

Publisher::~Publisher() {
  try {
    AwaitAll();
  } catch (const std::exception&) {  // then nothing is on its way any more
  }
}

void Publisher::Begin() {
  BeginParts();
  state_.RefreshOwned();
  EndParts();  // first: some of it is in every bucket's unit
  for (size_t b = 0; b < buckets_.size(); ++b) SendPart(b);
}

void Publisher::BeginParts() {
  AwaitAll();
  read_bucket_.reset();
  read_.reset();
  // Without the leaves' count of changes, by which autograd would take a bucket that comes while forward runs for a
  // change of what forward has used.
  whole_ = (state_.compute().defined() ? state_.compute() : state_.master).variable_data();
}

void Publisher::SendPart(size_t piece) {
  if (!state_.sharded() || state_.units()) return;  // of units forward gathers
  const Range mine = state_.owned()[piece].flat, bucket = buckets_[piece];
  tickets_[piece] =
      collectives_.AllGather(whole_.narrow(0, mine.begin, mine.size()), whole_.narrow(0, bucket.begin, bucket.size()),
                             Format("parameters %zu", piece));
  awaited_ = 0;
}

void Publisher::EndParts() {
  // Summed: what a rank does not own holds zeros that change no sum.
  if (state_.sharded() && state_.wide().defined())
    wide_ = collectives_.AllReduce(state_.wide().variable_data(), "parameters in float32");
}

void Publisher::Await(size_t parameter) {
  if (wide_ && state_.IsWide(parameter)) collectives_.Wait(*std::exchange(wide_, std::nullopt));
  if (!state_.sharded() || last_bucket_[parameter] < awaited_) return;
  collectives_.Wait(tickets_[last_bucket_[parameter]]);
  awaited_ = last_bucket_[parameter] + 1;
}

void Publisher::AwaitAll() {
  if (wide_) collectives_.Wait(*std::exchange(wide_, std::nullopt));
  if (awaited_ == buckets_.size()) return;
  collectives_.Wait(tickets_.back());
  awaited_ = buckets_.size();
}

void Publisher::GatherMaster(size_t bucket, const at::Tensor& into) {
  const OwnedPiece& mine = state_.owned()[bucket];
  const at::Tensor part = state_.master.narrow(0, mine.at, mine.flat.size()).to(into.device());
  collectives_.Wait(collectives_.AllGather(part, into, Format("master parameters %zu", bucket)));
}

void Publisher::Read(size_t parameter, const Pieces& piece) {
  AwaitAll();
  const Range range = state_.layout().range(parameter);
  const auto give = [&](const at::Tensor& flat, int64_t begin, int64_t end) {
    if (!piece) return;
    ReadPieces(flat.narrow(0, begin, end - begin), [&](std::span<const float> values) {
      collectives_.ThrowIfFailed();  // then nobody has filled it
      piece(values);
    });
  };
  if (state_.master_is_whole()) return give(state_.master, range.begin, range.end);
  std::exception_ptr error;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const Range bucket = buckets_[b];
    const int64_t begin = std::max(range.begin, bucket.begin), end = std::min(range.end, bucket.end);
    if (begin >= end) continue;
    if (read_bucket_ != b) {
      if (!read_.defined() || read_.numel() != bucket.size())
        read_ = at::empty({bucket.size()}, state_.gradient.options());
      GatherMaster(b, read_);
      read_bucket_ = b;
    }
    if (error) continue;
    try {
      give(read_, begin - bucket.begin, end - bucket.begin);
    } catch (...) {
      error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

at::Tensor Publisher::WholeMaster() {
  AwaitAll();
  if (state_.master_is_whole()) return state_.master;
  const at::Tensor whole =
      state_.gradient_is_whole() ? state_.gradient : at::empty({state_.layout().total()}, state_.gradient.options());
  for (size_t b = 0; b < buckets_.size(); ++b) GatherMaster(b, whole.narrow(0, buckets_[b].begin, buckets_[b].size()));
  return whole;
}

}  // namespace trainyard
