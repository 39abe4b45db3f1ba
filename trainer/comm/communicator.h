// Both kinds of talk over one group of host processes: a thread runs the collectives in their order.
//
// A rank whose communicator is destroyed, or whose process ends, has left.
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
#include <vector>

#include "trainer/base/error.h"
#include "trainer/comm/collectives.h"
#include "trainer/comm/control_plane.h"
#include "trainer/comm/flight_recorder.h"

namespace trainyard {

// Implements the contracts of collectives.h and control_plane.h for CPU tensors.
class Communicator : public ControlPlane, public Collectives {
 public:
  ~Communicator() override;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Ticket AllReduce(at::Tensor x, std::string unit) override;
  Ticket ReduceScatter(at::Tensor in, at::Tensor out, std::string unit) override;
  Ticket AllGather(at::Tensor in, at::Tensor out, std::string unit) override;
  Ticket Broadcast(at::Tensor x, int root, std::string unit) override;
  void Wait(Ticket ticket) override;
  bool Done(Ticket ticket) override;
  void ThrowIfFailed() override;

  void AllReduceNow(std::span<double> values, const std::string& what) override;
  std::vector<int64_t> AllGatherNow(std::span<const int64_t> values, const std::string& what) override;

 protected:
  // What is entered and over is noted in `recorder`, where there is one, as of `group`; it must outlive this.
  Communicator(int rank, int size, FlightRecorder* recorder = nullptr, std::string group = "")
      : rank_(rank), size_(size), recorder_(recorder), group_(std::move(group)) {}
  // Called by the constructors of the classes below, once they can run collectives, and by their
  // destructors, while they still can.
  void StartThread();
  void StopThread();

  // Run on the communicator's thread; block until done; throw on failure.
  virtual void DoAllReduce(at::Tensor& x) = 0;
  virtual void DoReduceScatter(const at::Tensor& in, at::Tensor& out) = 0;
  virtual void DoAllGather(const at::Tensor& in, at::Tensor& out) = 0;
  virtual void DoBroadcast(at::Tensor& x, int root) = 0;
  // Whether an error of one of these tells of the others or the network; and for people, on the same thread, what it
  // tells, which may take seconds.
  virtual bool IsTransport(const std::exception& error) const { return dynamic_cast<const PeerError*>(&error); }
  virtual std::string Explain(const std::string& error) { return error; }

 private:
  struct Job {
    std::string what;  // "all_reduce (consensus)"
    std::function<void()> run;
  };
  Ticket Submit(const char* name, const std::string& unit, const at::Tensor& moved, std::function<void()> run);
  void Loop();
  std::exception_ptr FailureOf(const std::string& what, const std::exception& error);

  const int rank_, size_;
  FlightRecorder* const recorder_;
  const std::string group_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> queue_;
  uint64_t submitted_ = 0, done_ = 0;  // collectives; finished ones, good or bad
  std::exception_ptr failure_;
  bool stopping_ = false;
  std::thread thread_;
};

// A world of one: every collective is a copy.
std::unique_ptr<Communicator> MakeSingleCommunicator();

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_COMM_COMMUNICATOR_H_
