#include "trainer/comm/c10d_store.h"

#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/comm/c10d_native.h"

namespace trainyard {
namespace {

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
  c10d::TCPStoreOptions native;
  native.port = static_cast<uint16_t>(options.port);
  native.isServer = options.host_here;
  native.waitWorkers = false;
  native.masterListenFd = options.listen_fd;
  native.useLibUV = true;
  const auto timeout = std::chrono::duration_cast<std::chrono::milliseconds>(options.timeout);
  const auto deadline = std::chrono::steady_clock::now() + options.timeout;
  // Short tries, so that a stop is obeyed while the host is not there yet.
  native.timeout = std::min(timeout, std::chrono::milliseconds(2000));
  for (;;) {
    try {
      native_->store = c10::make_intrusive<c10d::TCPStore>(options.host, native);
      native_->store->setTimeout(timeout);
      return;
    } catch (const std::exception& error) {
      if (options.stop && options.stop()) throw StoppedError("stopped on request while connecting to " + options.host);
      if (std::chrono::steady_clock::now() < deadline && !options.host_here) continue;
      throw PeerError("rendezvous with " + options.host + ":" + std::to_string(options.port) +
                      " failed: " + FirstLine(error.what()));
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

}  // namespace trainyard
