// Collectives made of what ranks send each other over Gloo. Includes c10d's headers, so only gloo.cc includes it.
//
// c10d has no reduce-scatter over Gloo, makes room for a whole result beside the result, and its all-reduce adds in an
// order that depends on an element's position once there are more than two ranks. Here every sum is in rank order,
// and beside the tensors there is room for a few chunks: what comes is added while the next is on its way.
#ifndef TRAINYARD_TRAINER_COMM_GLOO_EXCHANGE_H_
#define TRAINYARD_TRAINER_COMM_GLOO_EXCHANGE_H_

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

namespace trainyard {

// Used by one thread. Every rank makes the same calls in the same order, with tensors of the same sizes; they are
// contiguous. Throws what Gloo throws, also when a call takes longer than `timeout`; after that only the destructor may
// follow.
class GlooExchange {
 public:
  GlooExchange(c10::intrusive_ptr<c10d::ProcessGroupGloo> group, int rank, int size, std::chrono::milliseconds timeout)
      : group_(std::move(group)), rank_(rank), size_(size), timeout_(timeout) {}

  // As in collectives.h.
  void AllReduce(const at::Tensor& x);
  void ReduceScatter(const at::Tensor& in, const at::Tensor& out);
  void AllGather(const at::Tensor& in, const at::Tensor& out);

 private:
  using Works = std::deque<c10::intrusive_ptr<c10d::Work>>;

  void Begin() { deadline_ = std::chrono::steady_clock::now() + timeout_; }
  void Send(at::Tensor values, int to, int tag, Works& works);
  void Receive(at::Tensor into, int from, int tag, Works& works);
  void WaitFor(Works& works);
  // The part of a flat tensor that belongs to a rank: as even as whole elements can be, the last ones shorter.
  at::Tensor PartOf(const at::Tensor& flat, int rank) const;
  // A part is sent chunk by chunk.
  int64_t ChunksOf(const at::Tensor& part) const;
  at::Tensor Chunk(const at::Tensor& part, int64_t k) const;
  // `mine` = the sum of the ranks' values of this rank's part; it may be that part. `summed` gets each chunk of it.
  void SumParts(const at::Tensor& flat, const at::Tensor& mine, const std::function<void(const at::Tensor&)>& summed);
  // The ranks' sums, everywhere.
  void SumAndGather(const at::Tensor& flat);
  // Every other rank's part comes to its place; this one's is there.
  void GatherParts(const at::Tensor& flat);
  // Sums in rank order this rank's values and those that came, which lie one rank's after the other's.
  void SumInRankOrder(const at::Tensor& own, const at::Tensor& came, const at::Tensor& sum) const;
  // Room for `chunks` times what `elements` of each other rank take.
  at::Tensor Room(int64_t elements, int64_t chunks, at::ScalarType type);

  const c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  const int rank_, size_;
  const std::chrono::milliseconds timeout_;
  std::chrono::steady_clock::time_point deadline_;
  at::Tensor room_;  // bytes
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_COMM_GLOO_EXCHANGE_H_
