// Collectives over the tensors of a step, on the device that computes.
#ifndef TRAINYARD_TRAINER_COMM_COLLECTIVES_H_
#define TRAINYARD_TRAINER_COMM_COLLECTIVES_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace trainyard {

// Contract
//   - Every rank makes the same calls in the same order; they run strictly in that order, beside the caller, who
//     overlaps them with other work and Wait()s.
//   - Sums are deterministic: element i is ((x_0 + x_1) + x_2) + ..., whatever the buffer's length, so a result does
//     not depend on how gradients are cut into buckets. (NCCL promises it for two ranks.)
//   - A collective that fails (a peer left, the deadline passed, this rank's memory is not enough) makes every later
//     call fail.
//   - Tensors are contiguous and must stay, unchanged, until Wait. One thread at a time submits and waits: the
//     caller's, or autograd's, for a device, while the caller waits for it.
//   - `unit` names the content, for messages.
class Collectives {
 public:
  // A collective in flight. Valid until its Wait returns.
  using Ticket = uint64_t;

  virtual ~Collectives() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Sums `x` over the ranks, in place; float32, float64 or int64, and of a host's also bfloat16, whose sum is made in
  // float32 and rounded once.
  virtual Ticket AllReduce(at::Tensor x, std::string unit) = 0;
  // out = the sum over ranks of their in[rank]: [size * n] -> [n]. `out` may be this rank's part of `in`, the rest of
  // which is then of no use.
  virtual Ticket ReduceScatter(at::Tensor in, at::Tensor out, std::string unit) = 0;
  // out[r] = rank r's `in`: [n] -> [size * n], of any type. `in` may be this rank's part of `out`.
  virtual Ticket AllGather(at::Tensor in, at::Tensor out, std::string unit) = 0;
  // Everyone gets `root`'s `x`.
  virtual Ticket Broadcast(at::Tensor x, int root, std::string unit) = 0;

  // Returns when the collective and all before it are done, or come before whatever this thread enqueues next. Throws
  // PeerError if the others or the network failed one, OutOfMemoryError for memory, and this rank's own error as it is.
  virtual void Wait(Ticket ticket) = 0;
  // Whether it is done, without waiting.
  virtual bool Done(Ticket ticket) = 0;
  // Throws as Wait does where one has failed. On a device Wait returns before a collective has run: when the host has
  // waited for the device, no failure of those before it is unknown here.
  virtual void ThrowIfFailed() = 0;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_COMM_COLLECTIVES_H_
