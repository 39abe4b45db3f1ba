#include "trainer/comm/communicator.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/base/message.h"
#include "trainer/threads/parallel_for.h"

namespace trainyard {

Communicator::~Communicator() = default;

void Communicator::StartThread() {
  thread_ = std::thread([this] { Loop(); });
}

void Communicator::StopThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// Called while `error` is handled.
std::exception_ptr Communicator::FailureOf(const std::string& what, const std::exception& error) {
  if (const auto memory = FailedAllocation(error))
    return std::make_exception_ptr(OutOfMemoryError(*memory + " in " + what));
  if (!IsTransport(error)) return std::current_exception();
  const std::string text = error.what();
  return std::make_exception_ptr(
      PeerError("a collective failed: " + what + ": " + Explain(text.substr(0, text.find('\n')))));
}

void Communicator::Loop() {
  // Sums of chunks: a team of threads for them would compete with that of the step, of as many.
  const OneLibraryThread one_thread;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Job job = std::move(queue_.front());
    queue_.pop_front();
    std::exception_ptr failure = failure_;
    lock.unlock();
    if (!failure) {
      try {
        job.run();
      } catch (const std::exception& error) {
        failure = FailureOf(job.what, error);
      }
    }
    if (recorder_ && !failure) recorder_->End(group_);
    job.run = nullptr;
    lock.lock();
    if (!failure_) failure_ = failure;
    ++done_;
    changed_.notify_all();
  }
}

Communicator::Ticket Communicator::Submit(const char* name, const std::string& unit, const at::Tensor& moved,
                                          std::function<void()> run) {
  Ticket ticket = 0;
  const std::lock_guard lock(mutex_);
  try {
    queue_.push_back({std::string(name) + " (" + unit + ")", std::move(run)});
    ticket = submitted_++;
    if (recorder_) recorder_->Enter(group_, name, unit, static_cast<int64_t>(moved.nbytes()));
  } catch (const std::exception& error) {
    // It is left out here alone: the next one would meet this one of the others.
    if (!failure_) failure_ = FailureOf(name, error);
    changed_.notify_all();
    throw;
  }
  changed_.notify_all();
  return ticket;
}

Communicator::Ticket Communicator::AllReduce(at::Tensor x, std::string unit) {
  return Submit("all_reduce", unit, x, [this, x]() mutable { DoAllReduce(x); });
}

Communicator::Ticket Communicator::ReduceScatter(at::Tensor in, at::Tensor out, std::string unit) {
  return Submit("reduce_scatter", unit, in, [this, in, out]() mutable { DoReduceScatter(in, out); });
}

Communicator::Ticket Communicator::AllGather(at::Tensor in, at::Tensor out, std::string unit) {
  return Submit("all_gather", unit, out, [this, in, out]() mutable { DoAllGather(in, out); });
}

Communicator::Ticket Communicator::Broadcast(at::Tensor x, int root, std::string unit) {
  return Submit("broadcast", unit, x, [this, x, root]() mutable { DoBroadcast(x, root); });
}

void Communicator::Wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ > ticket; });
  if (failure_) std::rethrow_exception(failure_);
}

void Communicator::ThrowIfFailed() {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

bool Communicator::Done(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  return done_ > ticket;
}

void Communicator::AllReduceNow(std::span<double> values, const std::string& what) {
  Wait(AllReduce(at::from_blob(values.data(), {static_cast<int64_t>(values.size())}, at::kDouble), what));
}

std::vector<int64_t> Communicator::AllGatherNow(std::span<const int64_t> values, const std::string& what) {
  // All buffers have one length: the longest, which everyone has to know first.
  std::vector<double> counts(static_cast<size_t>(size_), 0);
  counts[static_cast<size_t>(rank_)] = static_cast<double>(values.size());
  AllReduceNow(counts, what);
  const auto longest = static_cast<int64_t>(*std::max_element(counts.begin(), counts.end()));
  if (longest == 0) return {};
  at::Tensor in = at::zeros({longest}, at::kLong), out = at::empty({longest * size_}, at::kLong);
  std::copy(values.begin(), values.end(), in.data_ptr<int64_t>());
  Wait(AllGather(in, out, what));
  std::vector<int64_t> gathered;
  for (size_t r = 0; r < counts.size(); ++r) {
    const int64_t* from = out.data_ptr<int64_t>() + static_cast<int64_t>(r) * longest;
    gathered.insert(gathered.end(), from, from + static_cast<int64_t>(counts[r]));
  }
  return gathered;
}

namespace {

class SingleCommunicator : public Communicator {
 public:
  SingleCommunicator() : Communicator(0, 1) { StartThread(); }
  ~SingleCommunicator() override { StopThread(); }

 protected:
  void DoAllReduce(at::Tensor&) override {}
  void DoReduceScatter(const at::Tensor& in, at::Tensor& out) override { out.copy_(in.view_as(out)); }
  void DoAllGather(const at::Tensor& in, at::Tensor& out) override { out.copy_(in.view_as(out)); }
  void DoBroadcast(at::Tensor&, int) override {}
};

}  // namespace

std::unique_ptr<Communicator> MakeSingleCommunicator() { return std::make_unique<SingleCommunicator>(); }

}  // namespace trainyard
