#include "trainer/comm/c10d_store.h"

#include <c10/util/Logging.h>

#include <algorithm>

#include "trainer/base/environment.h"
#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/comm/c10d_native.h"
#include "trainer/comm/listener.h"
#include "trainer/comm/patience.h"

namespace trainyard {
namespace {

std::string Where(const C10dStoreOptions& options) {
  return Format("rank 0's store at %s:%d (MASTER_ADDR, MASTER_PORT)", options.host.c_str(), options.port);
}

// The first line of a c10d message: the rest is a C++ stack.
std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

template <class F>
auto Guard(F call) {
  try {
    return call();
  } catch (const std::exception& error) {
    throw PeerError("the rendezvous store failed: " + FirstLine(error.what()));
  }
}

}  // namespace

C10dStore::C10dStore(const C10dStoreOptions& options) : native_(std::make_unique<Native>()) {
  using std::chrono::milliseconds;
  // c10d logs a C++ stack at each try, and throws the same; what we wait for is said here, in a line.
  if (EnvText("TORCH_CPP_LOG_LEVEL").empty()) FLAGS_caffe2_log_level = 3;
  c10d::TCPStoreOptions native;
  native.port = static_cast<uint16_t>(options.port);
  native.isServer = options.host_here;
  native.waitWorkers = false;
  native.masterListenFd = options.listen_fd;
  native.useLibUV = true;
  const auto deadline = std::chrono::steady_clock::now() + options.timeout;
  Patience patience(options.timeout, Where(options), options.stop);
  for (;;) {
    const std::chrono::duration<double> left = deadline - std::chrono::steady_clock::now();
    if (!options.host_here) WaitForListener(options.host, options.port, left, "rank 0's store", options.stop);
    // Short tries: whoever accepts may be no store, and c10d cannot be stopped.
    native.timeout = milliseconds(std::clamp<int64_t>(static_cast<int64_t>(left.count() * 1000), 500, 2000));
    try {
      native_->store = c10::make_intrusive<c10d::TCPStore>(options.host, native);
      native_->store->setTimeout(std::chrono::duration_cast<milliseconds>(options.timeout));
      return;
    } catch (const std::exception& error) {
      std::string problem = FirstLine(error.what());
      if (options.host_here) throw PeerError("cannot serve " + Where(options) + ": " + problem);
      patience.Pause([&] { return problem; });
    }
  }
}

C10dStore::~C10dStore() = default;

int C10dStore::port() const { return native_->store->getPort(); }

void C10dStore::Set(const std::string& key, const std::string& value) {
  Guard([&] { native_->store->set(key, std::vector<uint8_t>(value.begin(), value.end())); });
}

std::optional<std::string> C10dStore::Get(const std::string& key) {
  return Guard([&]() -> std::optional<std::string> {
    if (!native_->store->check({key})) return std::nullopt;
    const std::vector<uint8_t> value = native_->store->get(key);
    return std::string(value.begin(), value.end());
  });
}

int64_t C10dStore::Add(const std::string& key, int64_t amount) {
  return Guard([&] { return native_->store->add(key, amount); });
}

void C10dStore::Delete(const std::string& key) {
  Guard([&] { native_->store->deleteKey(key); });
}

}  // namespace trainyard
