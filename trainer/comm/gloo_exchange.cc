#include "trainer/comm/gloo_exchange.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>

#include "trainer/base/error.h"
#include "trainer/comm/gloo.h"

namespace trainyard {
namespace {

using Milliseconds = std::chrono::milliseconds;

// Messages between two ranks that have one tag come in their order.
constexpr int kToBeSummed = 0, kFinished = 1;
constexpr int64_t kDirect = 16384;   // bytes up to which a sum is made in one exchange instead of two: each of the two
                                     // costs a round trip, more than what is sent
constexpr int64_t kChunksAhead = 2;  // one is summed while another comes
constexpr int64_t kAtOnce = 64 << 20;  // bytes of an all-reduce under way at a time: each chunk takes memory

// Bytes of what comes from one rank at once: from few ranks, all of it together stays within a processor's caches. With
// a quarter of that, backward hides more of what is sent, and ranks that share processors take 3 to 10 % longer for a
// step (docs/benchmarks.md).
int64_t ChunkBytes(int size) { return std::max<int64_t>(1 << 16, (1 << 20) / (size - 1) / 64 * 64); }

}  // namespace

int64_t GlooBufferBytes(int size) { return size == 1 ? 0 : kChunksAhead * (size - 1) * ChunkBytes(size); }

void GlooExchange::Send(at::Tensor values, int to, int tag, Works& works) {
  std::vector<at::Tensor> one{std::move(values)};
  works.push_back(group_->send(one, to, tag));
}

void GlooExchange::Receive(at::Tensor into, int from, int tag, Works& works) {
  std::vector<at::Tensor> one{std::move(into)};
  works.push_back(group_->recv(one, from, tag));
}

void GlooExchange::WaitFor(Works& works) {
  for (; !works.empty(); works.pop_front()) {
    const auto left = std::chrono::duration_cast<Milliseconds>(deadline_ - std::chrono::steady_clock::now());
    if (!works.front()->wait(std::max(left, Milliseconds(1)))) throw PeerError("the wait for another rank was ended");
  }
}

at::Tensor GlooExchange::PartOf(const at::Tensor& flat, int rank) const {
  const int64_t n = flat.numel(), share = (n + size_ - 1) / size_, begin = std::min(n, share * rank);
  return flat.narrow(0, begin, std::min(share, n - begin));
}

at::Tensor GlooExchange::Room(int64_t elements, int64_t chunks, at::ScalarType type) {
  const int64_t n = elements * chunks * (size_ - 1), bytes = n * static_cast<int64_t>(c10::elementSize(type));
  if (!room_.defined() || room_.numel() < bytes) room_ = at::empty({bytes}, at::kByte);
  return room_.narrow(0, 0, bytes).view(type).view({chunks, size_ - 1, elements});
}

void GlooExchange::SumInRankOrder(const at::Tensor& own, const at::Tensor& came, const at::Tensor& sum) const {
  const auto values = [&](int rank) { return rank == rank_ ? own : came[rank < rank_ ? rank : rank - 1]; };
  if (sum.scalar_type() == at::kBFloat16) {  // rounded once
    const at::Tensor wide = values(0).to(at::kFloat);
    for (int rank = 1; rank < size_; ++rank) wide.add_(values(rank));
    sum.copy_(wide);
    return;
  }
  at::Tensor so_far = values(0);
  for (int rank = 1; rank < size_; ++rank) {
    at::Tensor to = rank == size_ - 1 ? sum : came[0];
    at::add_out(to, so_far, values(rank));
    so_far = to;
  }
}

int64_t GlooExchange::ChunksOf(const at::Tensor& part) const {
  const int64_t chunk = ChunkBytes(size_) / static_cast<int64_t>(part.element_size());
  return (part.numel() + chunk - 1) / chunk;
}

at::Tensor GlooExchange::Chunk(const at::Tensor& part, int64_t k) const {
  const int64_t chunk = ChunkBytes(size_) / static_cast<int64_t>(part.element_size());
  return part.narrow(0, k * chunk, std::min(chunk, part.numel() - k * chunk));
}

void GlooExchange::SumParts(const at::Tensor& flat, const at::Tensor& mine,
                            const std::function<void(const at::Tensor&)>& summed) {
  const at::Tensor own = PartOf(flat, rank_);
  const int64_t chunks = ChunksOf(own);
  const at::Tensor room = Room(chunks > 0 ? Chunk(own, 0).numel() : 0, kChunksAhead, flat.scalar_type());
  std::array<Works, kChunksAhead> coming;
  const auto receive = [&](int64_t k) {
    if (k >= chunks) return;
    const int64_t n = Chunk(own, k).numel();
    for (int from = 0, row = 0; from < size_; ++from) {
      if (from != rank_)
        Receive(room[k % kChunksAhead][row++].narrow(0, 0, n), from, kToBeSummed, coming[k % kChunksAhead]);
    }
  };
  // Before anything is sent: what the others send leaves them at once where there is room for it here, and a round trip
  // later where there is not.
  for (int64_t k = 0; k < kChunksAhead; ++k) receive(k);
  // All of it at once: what nobody has made room for yet waits with its sender.
  Works sent;
  for (int64_t k = 0, most = ChunksOf(PartOf(flat, 0)); k < most; ++k) {
    for (int step = 1; step < size_; ++step) {
      const int to = (rank_ + step) % size_;
      const at::Tensor part = PartOf(flat, to);
      if (k < ChunksOf(part)) Send(Chunk(part, k), to, kToBeSummed, sent);
    }
  }
  for (int64_t k = 0; k < chunks; ++k) {
    WaitFor(coming[k % kChunksAhead]);
    const at::Tensor values = Chunk(own, k), sum = Chunk(mine, k);
    SumInRankOrder(values, room[k % kChunksAhead].narrow(1, 0, values.numel()), sum);
    summed(sum);
    receive(k + kChunksAhead);
  }
  WaitFor(sent);
}

void GlooExchange::GatherParts(const at::Tensor& flat) {
  Works works;
  const at::Tensor own = PartOf(flat, rank_);
  for (int step = 1; step < size_; ++step) {
    const int from = (rank_ + size_ - step) % size_;
    const at::Tensor part = PartOf(flat, from);
    if (part.numel() > 0) Receive(part, from, kFinished, works);
  }
  for (int step = 1; step < size_; ++step) {
    if (own.numel() > 0) Send(own, (rank_ + step) % size_, kFinished, works);
  }
  WaitFor(works);
}

// A chunk leaves for the others as soon as it is summed, while the next ones come. It arrives where this rank's values
// of it lay: those have gone, since the sum has them.
void GlooExchange::SumAndGather(const at::Tensor& flat) {
  Works works;
  for (int64_t k = 0, most = ChunksOf(PartOf(flat, 0)); k < most; ++k) {
    for (int step = 1; step < size_; ++step) {
      const int from = (rank_ + size_ - step) % size_;
      const at::Tensor part = PartOf(flat, from);
      if (k < ChunksOf(part)) Receive(Chunk(part, k), from, kFinished, works);
    }
  }
  SumParts(flat, PartOf(flat, rank_), [&](const at::Tensor& sum) {
    for (int step = 1; step < size_; ++step) Send(sum, (rank_ + step) % size_, kFinished, works);
  });
  WaitFor(works);
}

void GlooExchange::AllReduce(const at::Tensor& x) {
  Begin();
  const at::Tensor flat = x.view({x.numel()});
  if (flat.numel() == 0) return;
  if (static_cast<int64_t>(x.nbytes()) > kDirect) {
    const int64_t piece = kAtOnce / static_cast<int64_t>(x.element_size());
    for (int64_t begin = 0; begin < flat.numel(); begin += piece)
      SumAndGather(flat.narrow(0, begin, std::min(piece, flat.numel() - begin)));
    return;
  }
  const at::Tensor came = Room(flat.numel(), 1, flat.scalar_type())[0];
  Works works;
  for (int other = 0, row = 0; other < size_; ++other) {
    if (other != rank_) Receive(came[row++], other, kToBeSummed, works);
  }
  for (int other = 0; other < size_; ++other) {
    if (other != rank_) Send(flat, other, kToBeSummed, works);
  }
  WaitFor(works);
  SumInRankOrder(flat, came, flat);
}

void GlooExchange::ReduceScatter(const at::Tensor& in, const at::Tensor& out) {
  Begin();
  SumParts(in.view({in.numel()}), out.view({out.numel()}), [](const at::Tensor&) {});
}

void GlooExchange::AllGather(const at::Tensor& in, const at::Tensor& out) {
  Begin();
  // Bytes are bytes: not every type has a sum.
  const at::Tensor flat = out.view({out.numel()}).view(at::kByte), own = PartOf(flat, rank_);
  if (own.data_ptr() != in.data_ptr()) own.copy_(in.view({in.numel()}).view(at::kByte));
  GatherParts(flat);
}

}  // namespace trainyard
