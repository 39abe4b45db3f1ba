#include "trainer/comm/communicator.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "trainer/base/error.h"

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

void Communicator::Loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Job job = std::move(queue_.front());
    queue_.pop_front();
    std::string failure = failure_;
    lock.unlock();
    if (failure.empty()) {
      recorder_.Start(job.sequence);
      try {
        job.run();
        recorder_.Finish(job.sequence);
      } catch (const std::exception& error) {
        const std::string text = error.what();
        failure = job.what + ": " + Explain(text.substr(0, text.find('\n')));
      }
    }
    job.run = nullptr;
    lock.lock();
    if (failure_.empty()) failure_ = failure;
    ++done_;
    changed_.notify_all();
  }
}

Communicator::Ticket Communicator::Submit(const char* name, std::string unit, int64_t bytes,
                                          std::function<void()> run) {
  const std::string what = std::string(name) + " (" + unit + ")";
  const uint64_t sequence = recorder_.Submit(name, std::move(unit), bytes);
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({sequence, what, std::move(run)});
  }
  changed_.notify_all();
  return sequence;
}

Communicator::Ticket Communicator::AllReduce(at::Tensor x, std::string unit) {
  const auto bytes = static_cast<int64_t>(x.nbytes());
  return Submit("all_reduce", std::move(unit), bytes, [this, x]() mutable { DoAllReduce(x); });
}

Communicator::Ticket Communicator::ReduceScatter(at::Tensor in, at::Tensor out, std::string unit) {
  const auto bytes = static_cast<int64_t>(in.nbytes());
  return Submit("reduce_scatter", std::move(unit), bytes, [this, in, out]() mutable { DoReduceScatter(in, out); });
}

Communicator::Ticket Communicator::AllGather(at::Tensor in, at::Tensor out, std::string unit) {
  const auto bytes = static_cast<int64_t>(out.nbytes());
  return Submit("all_gather", std::move(unit), bytes, [this, in, out]() mutable { DoAllGather(in, out); });
}

Communicator::Ticket Communicator::Broadcast(at::Tensor x, int root, std::string unit) {
  const auto bytes = static_cast<int64_t>(x.nbytes());
  return Submit("broadcast", std::move(unit), bytes, [this, x, root]() mutable { DoBroadcast(x, root); });
}

void Communicator::Wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ > ticket; });
  if (!failure_.empty()) throw PeerError("a collective failed: " + failure_);
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
