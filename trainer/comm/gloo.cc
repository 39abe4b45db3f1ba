#include "trainer/comm/gloo.h"

#include <gloo/common/error.h>
#include <gloo/common/logging.h>
#include <linux/filter.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <set>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trainer/base/error.h"
#include "trainer/base/message.h"
#include "trainer/base/text.h"
#include "trainer/comm/gloo_exchange.h"

namespace trainyard {
namespace {

using Milliseconds = std::chrono::milliseconds;

// Our store as c10d's: what Gloo waits for holds nobody else's calls up, and ends when the host does not answer.
class StoreForGloo : public c10d::Store {
 public:
  StoreForGloo(std::shared_ptr<trainyard::Store> store, Milliseconds timeout)
      : c10d::Store(timeout), store_(std::move(store)) {}

  c10::intrusive_ptr<c10d::Store> clone() override { return c10::make_intrusive<StoreForGloo>(store_, timeout_); }
  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    store_->Set(key, std::string(value.begin(), value.end()));
  }
  std::vector<uint8_t> get(const std::string& key) override {
    const std::string value = store_->Wait(key, timeout_, kWhat);
    return {value.begin(), value.end()};
  }
  int64_t add(const std::string& key, int64_t value) override { return store_->Add(key, value); }
  bool deleteKey(const std::string& key) override {
    const bool was_there = store_->Get(key).has_value();
    store_->Delete(key);
    return was_there;
  }
  bool check(const std::vector<std::string>& keys) override {
    return std::all_of(keys.begin(), keys.end(),
                       [this](const std::string& key) { return store_->Get(key).has_value(); });
  }
  int64_t getNumKeys() override { throw std::logic_error("Gloo does not count keys"); }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const Milliseconds& timeout) override {
    for (const std::string& key : keys) store_->Wait(key, timeout, kWhat);
  }

 private:
  static constexpr const char* kWhat = "another rank's address";
  std::shared_ptr<trainyard::Store> store_;
};

class GlooCommunicator : public Communicator {
 public:
  GlooCommunicator(c10::intrusive_ptr<c10d::ProcessGroupGloo> group, const ConnectOptions& options)
      : Communicator(options.rank, options.size, options.recorder, options.group),
        options_(options),
        group_(std::move(group)),
        exchange_(group_, options.rank, options.size,
                  std::chrono::duration_cast<Milliseconds>(options.collective_timeout)) {
    StartThread();
  }
  ~GlooCommunicator() override { StopThread(); }

 protected:
  void DoAllReduce(at::Tensor& x) override {
    if (size() > 1) exchange_.AllReduce(x);
  }
  void DoReduceScatter(const at::Tensor& in, at::Tensor& out) override {
    if (size() > 1) return exchange_.ReduceScatter(in, out);
    out.copy_(in.view_as(out));
  }
  void DoAllGather(const at::Tensor& in, at::Tensor& out) override { exchange_.AllGather(in, out); }

  void DoBroadcast(at::Tensor& x, int root) override {
    std::vector<at::Tensor> tensors{x};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    group_->broadcast(tensors, options)->wait();
  }

  bool IsTransport(const std::exception& error) const override {
    return Communicator::IsTransport(error) || dynamic_cast<const ::gloo::Exception*>(&error) ||
           dynamic_cast<const ::gloo::EnforceNotMet*>(&error) || dynamic_cast<const c10::DistError*>(&error);
  }

  std::string Explain(const std::string& error) override {
    if (error.find("Timed out") == std::string::npos) return error;
    return "not answered within " + HumanSeconds(options_.collective_timeout.count()) +
           " (parallel.collective_seconds)" + (options_.who_is_silent ? "; " + options_.who_is_silent() : "");
  }

 private:
  const ConnectOptions options_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  GlooExchange exchange_;
};

// This process's sockets that listen.
std::set<int> ListeningSockets() {
  std::set<int> found;
  std::error_code none;  // without /proc no door is closed
  for (std::filesystem::directory_iterator fd("/proc/self/fd", none), end; !none && fd != end; fd.increment(none)) {
    const std::string name = fd->path().filename();
    int number = -1, listens = 0;
    std::from_chars(name.data(), name.data() + name.size(), number);
    socklen_t size = sizeof listens;
    if (getsockopt(number, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens) found.insert(number);
  }
  return found;
}

struct Device {
  std::shared_ptr<::gloo::transport::Device> device;
  std::set<int> listening;  // its sockets
};

// Gloo does not tell its socket: it is the one that listens behind the call and did not before it. Nothing else begins
// to listen while groups are made, but other groups.
Device MakeDevice(const std::string& interface) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  const std::set<int> before = ListeningSockets();
  Device made{c10d::ProcessGroupGloo::createDeviceForHostname(interface), {}};
  const std::set<int> now = ListeningSockets();
  std::set_difference(now.begin(), now.end(), before.begin(), before.end(),
                      std::inserter(made.listening, made.listening.end()));
  return made;
}

// Lets nobody in any more, once every other rank is. Gloo keeps the descriptor of every connection that is none of its
// peers', also of one that was closed at once, and aborts when there are no more. Its loop owns the socket: closed or
// shut down, that would abort as well. A filter that lets no packet through leaves it as it is; who connects waits in
// vain.
void CloseDoor(int listening) {
  sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program{.len = 1, .filter = &drop};
  // A kernel that has no filters leaves the door open, which a run without strangers never notices.
  setsockopt(listening, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

}  // namespace

void KeepNoRecordsOfC10d() { setenv("TORCH_FR_BUFFER_SIZE", "0", 1); }

std::unique_ptr<Communicator> MakeGlooCommunicator(std::shared_ptr<Store> store, const ConnectOptions& options) {
  try {
    const auto timeout = std::chrono::duration_cast<Milliseconds>(options.rendezvous_timeout);
    auto native = c10d::ProcessGroupGloo::Options::create(timeout);
    const Device device = MakeDevice(options.interface);
    native->devices.push_back(device.device);
    native->threads = 1;
    auto addresses = c10::make_intrusive<StoreForGloo>(std::move(store), timeout);
    auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(addresses, options.rank, options.size, native);
    for (const int listening : device.listening) CloseDoor(listening);
    group->setTimeout(std::chrono::duration_cast<Milliseconds>(options.collective_timeout));
    return std::make_unique<GlooCommunicator>(std::move(group), options);
  } catch (const std::exception& error) {
    if (FailedAllocation(error)) throw;
    const std::string text = error.what();
    if (IsOfThreads(text))
      throw Error(ExitCode::kInternal, "cannot start Gloo's threads; the limits are " + std::string(kThreadLimits));
    throw PeerError("connecting rank " + std::to_string(options.rank) + " of " + std::to_string(options.size) +
                    " over " + options.interface + " failed: " + text.substr(0, text.find('\n')));
  }
}

}  // namespace trainyard
