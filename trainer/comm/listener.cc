#include "trainer/comm/listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "trainer/base/abandonable_thread.h"
#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/comm/patience.h"

namespace trainyard {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kSlice(50);                    // how long a stop may go unseen
constexpr std::chrono::seconds kOneTry(10);           // for a name server, and again for a connection, at most
constexpr std::chrono::duration<double> kLeast(0.5);  // for the first try, whatever the deadline
using Clock = std::chrono::steady_clock;

using Addresses = std::shared_ptr<addrinfo>;
struct Resolution {
  Addresses addresses;
  std::string problem;
};

Resolution Resolve(const std::string& host, int port, int flags) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) return {nullptr, std::string("cannot resolve the name: ") + gai_strerror(error)};
  return {Addresses(found, freeaddrinfo), ""};
}

// A resolver cannot be interrupted, so a thread asks it.
Resolution ResolveMeanwhile(const std::string& host, int port, Clock::time_point end,
                            const std::function<void()>& check) {
  if (Resolution numeric = Resolve(host, port, AI_NUMERICHOST); numeric.addresses) return numeric;
  const auto answer = std::make_shared<Resolution>();
  const AbandonableThread resolver([=] { *answer = Resolve(host, port, 0); });
  while (Clock::now() < end) {
    if (resolver.WaitFor(kSlice)) return *answer;
    check();
  }
  return {nullptr, "cannot resolve the name: no answer"};
}

// Empty when the connection came about.
std::string Connect(const addrinfo& address, Clock::time_point end, const std::function<void()>& check) {
  struct Socket {
    explicit Socket(int family) : fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {}
    ~Socket() { close(fd); }
    const int fd;
  } const socket(address.ai_family);
  if (socket.fd < 0) return std::strerror(errno);
  if (connect(socket.fd, address.ai_addr, address.ai_addrlen) == 0) return "";
  if (errno != EINPROGRESS) return std::strerror(errno);
  while (Clock::now() < end) {
    pollfd ready = {socket.fd, POLLOUT, 0};
    if (poll(&ready, 1, static_cast<int>(kSlice.count())) > 0) {
      int error = 0;
      socklen_t size = sizeof error;
      getsockopt(socket.fd, SOL_SOCKET, SO_ERROR, &error, &size);
      return error == 0 ? "" : std::strerror(error);
    }
    check();
  }
  return "no answer";
}

}  // namespace

void WaitForListener(const std::string& host, int port, std::chrono::duration<double> deadline, const std::string& what,
                     const std::function<bool()>& stop) {
  const std::string where = Format("%s at %s:%d (MASTER_ADDR, MASTER_PORT)", what.c_str(), host.c_str(), port);
  Patience patience(deadline, where, stop, Voice::kNowAndThen);
  const auto check = [&] { patience.CheckStop(); };
  const auto last = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::max(deadline, kLeast));
  const auto end = [&] { return std::min(last, Clock::now() + kOneTry); };
  for (;;) {
    const Resolution resolution = ResolveMeanwhile(host, port, end(), check);
    std::string problem = resolution.problem;
    for (const addrinfo* address = resolution.addresses.get(); address; address = address->ai_next) {
      problem = Connect(*address, end(), check);
      if (problem.empty()) return;
    }
    patience.Pause([&] { return problem; });
  }
}

}  // namespace trainyard
