#include "trainer/comm/in_process.h"

#include <ATen/ops/cat.h>

#include <stdexcept>

#include "trainer/base/error.h"

namespace trainyard {
namespace {

// Where the ranks meet: everyone deposits a tensor, the last one computes the result for all.
class Meeting {
 public:
  explicit Meeting(int size) : size_(size), parts_(static_cast<size_t>(size)) {}

  // `combine` sees every rank's tensor in rank order and returns the common result.
  at::Tensor Exchange(int rank, const at::Tensor& part,
                      const std::function<at::Tensor(const std::vector<at::Tensor>&)>& combine) {
    std::unique_lock lock(mutex_);
    const uint64_t round = round_;
    // What a transport does not notice, or only by hanging: ranks whose sequences of collectives differ.
    if (arrived_ > 0 && part.nbytes() != bytes_) {
      left_ = true;
      changed_.notify_all();
      throw std::logic_error("the ranks make different collectives");
    }
    bytes_ = part.nbytes();
    parts_[static_cast<size_t>(rank)] = part.clone();
    if (++arrived_ == size_) {
      result_ = combine(parts_);
      arrived_ = 0;
      ++round_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return round_ != round || left_; });
    if (round_ == round) throw PeerError("a rank left the in-process world");
    return result_;
  }

  void Leave() {
    const std::lock_guard lock(mutex_);
    left_ = true;
    changed_.notify_all();
  }

 private:
  int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<at::Tensor> parts_;
  at::Tensor result_;
  int arrived_ = 0;
  size_t bytes_ = 0;  // of who has arrived
  uint64_t round_ = 0;
  bool left_ = false;
};

class InProcessCommunicator : public Communicator {
 public:
  InProcessCommunicator(std::shared_ptr<Meeting> meeting, int rank, int size)
      : Communicator(rank, size), meeting_(std::move(meeting)) {
    StartThread();
  }
  ~InProcessCommunicator() override {
    StopThread();
    meeting_->Leave();
  }

 protected:
  void DoAllReduce(at::Tensor& x) override { x.copy_(Sum(x)); }
  void DoReduceScatter(const at::Tensor& in, at::Tensor& out) override {
    out.copy_(Sum(in.flatten()).narrow(0, rank() * out.numel(), out.numel()).view_as(out));
  }
  void DoAllGather(const at::Tensor& in, at::Tensor& out) override {
    out.copy_(
        meeting_->Exchange(rank(), in.flatten(), [](const std::vector<at::Tensor>& parts) { return at::cat(parts); })
            .view_as(out));
  }
  void DoBroadcast(at::Tensor& x, int root) override {
    x.copy_(meeting_->Exchange(
        rank(), x, [root](const std::vector<at::Tensor>& parts) { return parts[static_cast<size_t>(root)]; }));
  }

 private:
  at::Tensor Sum(const at::Tensor& x) {
    return meeting_->Exchange(rank(), x, [](const std::vector<at::Tensor>& parts) {
      const at::ScalarType type = parts[0].scalar_type();
      at::Tensor sum = type == at::kBFloat16 ? parts[0].to(at::kFloat) : parts[0].clone();
      for (size_t r = 1; r < parts.size(); ++r) sum.add_(parts[r]);
      return sum.to(type);  // rounded once
    });
  }

  std::shared_ptr<Meeting> meeting_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> MakeInProcessWorld(int size) {
  auto meeting = std::make_shared<Meeting>(size);
  std::vector<std::unique_ptr<Communicator>> world;
  for (int rank = 0; rank < size; ++rank) world.push_back(std::make_unique<InProcessCommunicator>(meeting, rank, size));
  return world;
}

}  // namespace trainyard
