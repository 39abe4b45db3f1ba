// Collectives between the ranks of a world.
//
// Contract
//   - Every rank makes the same calls in the same order; they run strictly in that order, on a
//     thread of the communicator's own, so a caller overlaps them with other work and Wait()s.
//   - Sums are deterministic: element i of an all-reduce is ((x_0 + x_1) + x_2) + ..., whatever the
//     buffer's length, so the result does not depend on how gradients are cut into buckets.
//   - A collective that fails (a peer left, the deadline passed) makes every later call fail. A rank
//     whose communicator is destroyed, or whose process ends, has left.
//   - One thread at a time submits and waits.
#ifndef TRAINYARD_TRAINER_COMM_COMMUNICATOR_H_
#define TRAINYARD_TRAINER_COMM_COMMUNICATOR_H_

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>

#include "trainer/comm/flight_recorder.h"

namespace trainyard {

class Communicator {
 public:
  // A collective in flight. Valid until its Wait returns.
  using Ticket = uint64_t;

  virtual ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }  // [0, size)
  int size() const { return size_; }  // >= 1

  // Each takes contiguous CPU tensors whose memory must stay until Wait; `unit` names the content.
  // Sums `x` over the ranks, in place; float32, float64 or int64.
  Ticket AllReduce(at::Tensor x, std::string unit);
  // out[r] = rank r's `in`: [n] -> [size * n].
  Ticket AllGather(at::Tensor in, at::Tensor out, std::string unit);
  // Everyone gets `root`'s `x`.
  Ticket Broadcast(at::Tensor x, int root, std::string unit);

  // Returns when the collective and all before it are done. Throws PeerError if one failed.
  void Wait(Ticket ticket);

  // Whether it is done, without waiting.
  bool Done(Ticket ticket);

  // The same, waited for, on fp64 values: the small exchanges of a step.
  void AllReduceNow(std::span<double> values, const std::string& unit);
  void Barrier(const std::string& unit);

  const FlightRecorder& recorder() const { return recorder_; }

 protected:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}
  // Called by the constructors of the classes below, once they can run collectives, and by their
  // destructors, while they still can.
  void StartThread();
  void StopThread();

  // Run on the communicator's thread; block until done; throw on failure.
  virtual void DoAllReduce(at::Tensor& x) = 0;
  virtual void DoAllGather(const at::Tensor& in, at::Tensor& out) = 0;
  virtual void DoBroadcast(at::Tensor& x, int root) = 0;

 private:
  struct Job {
    uint64_t sequence;
    std::function<void()> run;
  };
  Ticket Submit(const char* name, std::string unit, int64_t bytes, std::function<void()> run);
  void Loop();

  int rank_, size_;
  FlightRecorder recorder_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> queue_;
  uint64_t done_ = 0;  // collectives finished, good or bad
  std::string failure_;
  bool stopping_ = false;
  std::thread thread_;
};

// A world of one: every collective is a copy.
std::unique_ptr<Communicator> MakeSingleCommunicator();

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_COMM_COMMUNICATOR_H_
