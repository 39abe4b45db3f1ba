#include "trainer/comm/c10d_store.h"

#include <arpa/inet.h>
#include <c10/util/Logging.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "trainer/base/environment.h"
#include "trainer/base/error.h"
#include "trainer/base/message.h"
#include "trainer/base/text.h"
#include "trainer/comm/c10d_native.h"
#include "trainer/comm/listener.h"
#include "trainer/comm/patience.h"

// The C library's, for every library of this process. LibTorch's store asks for the name of each rank that connects,
// for a log, in the one thread that serves all of them; where a name server does not answer, that stops them for 5 s
// each. Nothing here has a use for names: an address it is.
extern "C" __attribute__((visibility("default"))) int getnameinfo(const sockaddr* address, socklen_t size, char* host,
                                                                  socklen_t host_size, char* service,
                                                                  socklen_t service_size, int) {
  const void* bytes = nullptr;
  in_port_t port = 0;
  if (address->sa_family == AF_INET && size >= sizeof(sockaddr_in)) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    bytes = &v4->sin_addr;
    port = v4->sin_port;
  } else if (address->sa_family == AF_INET6 && size >= sizeof(sockaddr_in6)) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    bytes = &v6->sin6_addr;
    port = v6->sin6_port;
  } else {
    return EAI_FAMILY;
  }
  if (host && host_size > 0 && !inet_ntop(address->sa_family, bytes, host, host_size)) return EAI_OVERFLOW;
  if (service && service_size > 0 &&
      std::snprintf(service, service_size, "%u", ntohs(port)) >= static_cast<int>(service_size))
    return EAI_OVERFLOW;
  return 0;
}

namespace trainyard {
namespace {

std::string Where(const C10dStoreOptions& options) {
  return Format("rank 0's store at %s:%d (MASTER_ADDR, MASTER_PORT)", options.host.c_str(), options.port);
}

// The first line of a c10d message: the rest is a C++ stack.
std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

template <class F>
auto C10dStore::Ask(F call) {
  using Answer = std::invoke_result_t<F, c10d::TCPStore&>;
  const auto answer = std::make_shared<Answer>();
  try {
    if (errands_.Do([native = native_, call = std::move(call), answer] { *answer = call(*native->store); }, patience_))
      return std::move(*answer);
  } catch (const std::exception& error) {
    throw PeerError("the rendezvous store failed: " + FirstLine(error.what()));
  }
  throw PeerError("the rendezvous store did not answer for " + HumanSeconds(patience_.count()) +
                  ": rank 0's node is lost, or its launcher is frozen");
}

C10dStore::C10dStore(const C10dStoreOptions& options) : patience_(options.answer), native_(std::make_shared<Native>()) {
  using std::chrono::duration_cast, std::chrono::milliseconds;
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
      const auto made = std::make_shared<Native>();
      const auto make = [made, native, host = options.host, answer = duration_cast<milliseconds>(options.answer)] {
        made->store = c10::make_intrusive<c10d::TCPStore>(host, native);
        made->store->setTimeout(answer);
      };
      const std::chrono::duration<double> patience =
          options.host_here ? options.answer : native.timeout + milliseconds(500);
      if (!errands_.Do(make, patience)) throw std::runtime_error("no answer");
      native_ = made;
      return;
    } catch (const std::exception& error) {
      std::string problem = FirstLine(error.what());
      if (options.host_here && IsOfThreads(problem))
        throw Error(ExitCode::kInternal,
                    "cannot start the store's threads; the limits are " + std::string(kThreadLimits));
      if (options.host_here) throw PeerError("cannot serve " + Where(options) + ": " + problem);
      patience.Pause([&] { return problem; });
    }
  }
}

C10dStore::~C10dStore() = default;

int C10dStore::port() const { return native_->store->getPort(); }

void C10dStore::Set(const std::string& key, const std::string& value) {
  Ask([key, bytes = std::vector<uint8_t>(value.begin(), value.end())](c10d::TCPStore& store) {
    store.set(key, bytes);
    return true;
  });
}

std::optional<std::string> C10dStore::Get(const std::string& key) {
  return Ask([key](c10d::TCPStore& store) -> std::optional<std::string> {
    if (!store.check({key})) return std::nullopt;
    const std::vector<uint8_t> value = store.get(key);
    return std::string(value.begin(), value.end());
  });
}

int64_t C10dStore::Add(const std::string& key, int64_t amount) {
  return Ask([key, amount](c10d::TCPStore& store) { return store.add(key, amount); });
}

void C10dStore::Delete(const std::string& key) {
  Ask([key](c10d::TCPStore& store) { return store.deleteKey(key); });
}

}  // namespace trainyard
