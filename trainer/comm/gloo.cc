#include "trainer/comm/gloo.h"

#include <ATen/ops/empty.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/comm/c10d_native.h"

namespace trainyard {
namespace {

using Milliseconds = std::chrono::milliseconds;

class GlooCommunicator : public Communicator {
 public:
  GlooCommunicator(c10::intrusive_ptr<c10d::ProcessGroupGloo> group, const GlooOptions& options)
      : Communicator(options.rank, options.size), options_(options), group_(std::move(group)) {
    StartThread();
  }
  ~GlooCommunicator() override { StopThread(); }

 protected:
  // Gloo's own all-reduce adds in an order that depends on an element's position once there are
  // more than two ranks. For two, a + b has the same bits in either order, and it is faster.
  void DoAllReduce(at::Tensor& x) override {
    if (size() <= 2) {
      std::vector<at::Tensor> tensors{x};
      group_->allreduce(tensors)->wait();
      return;
    }
    const int64_t n = x.numel(), share = (n + size() - 1) / size();
    at::Tensor padded = at::empty({share * size()}, x.options());
    at::Tensor received = at::empty_like(padded);
    padded.narrow(0, 0, n).copy_(x.view({n}));
    padded.narrow(0, n, share * size() - n).zero_();
    at::Tensor sum = received.narrow(0, 0, share);
    ExchangeAndSum(padded, received);
    group_->_allgather_base(padded, sum)->wait();
    x.view({n}).copy_(padded.narrow(0, 0, n));
  }

  void DoReduceScatter(const at::Tensor& in, at::Tensor& out) override {
    at::Tensor received = at::empty_like(in);
    ExchangeAndSum(in, received);
    out.copy_(received.narrow(0, 0, out.numel()).view_as(out));
  }

  void DoAllGather(const at::Tensor& in, at::Tensor& out) override {
    // Bytes are bytes: Gloo knows few types.
    at::Tensor input = in.view(at::kByte), output = out.view(at::kByte);
    group_->_allgather_base(output, input)->wait();
  }

  void DoBroadcast(at::Tensor& x, int root) override {
    std::vector<at::Tensor> tensors{x};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    group_->broadcast(tensors, options)->wait();
  }

  std::string Explain(const std::string& error) override {
    if (error.find("Timed out") == std::string::npos) return error;
    return "not answered within " + HumanSeconds(options_.collective_timeout.count()) +
           " (parallel.collective_seconds)" + (options_.who_is_silent ? "; " + options_.who_is_silent() : "");
  }

 private:
  // Every rank's part for this one, summed in rank order into the first part of `received`.
  void ExchangeAndSum(const at::Tensor& parts, at::Tensor& received) {
    const int64_t share = parts.numel() / size();
    at::Tensor sent = parts;
    std::vector<int64_t> even;
    group_->alltoall_base(received, sent, even, even)->wait();
    at::Tensor sum = received.narrow(0, 0, share);
    for (int r = 1; r < size(); ++r) sum.add_(received.narrow(0, r * share, share));
  }

  const GlooOptions options_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

}  // namespace

std::unique_ptr<Communicator> MakeGlooCommunicator(const C10dStore& store, const GlooOptions& options) {
  try {
    auto native =
        c10d::ProcessGroupGloo::Options::create(std::chrono::duration_cast<Milliseconds>(options.rendezvous_timeout));
    native->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(options.interface));
    native->threads = 1;
    auto prefixed = c10::make_intrusive<c10d::PrefixStore>(options.prefix, store.native().store);
    auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(prefixed, options.rank, options.size, native);
    group->setTimeout(std::chrono::duration_cast<Milliseconds>(options.collective_timeout));
    return std::make_unique<GlooCommunicator>(std::move(group), options);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    throw PeerError("connecting rank " + std::to_string(options.rank) + " of " + std::to_string(options.size) +
                    " over " + options.interface + " failed: " + text.substr(0, text.find('\n')));
  }
}

}  // namespace trainyard
