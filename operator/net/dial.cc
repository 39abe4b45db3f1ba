#include "operator/net/dial.h"

#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>

namespace trainyard::net {
namespace {

constexpr double kLongestSeconds = 5;
constexpr int kUserTimeoutMs = 20000;

void SetSocketOptions(int socket) {
  const int on = 1, idle = 15, interval = 5, count = 3, timeout = kUserTimeoutMs;
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
  setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof timeout);
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Status Connect(const Address& address, const Wait& wait, Descriptor& out) {
  out = Descriptor(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!out.open()) return SocketFailed("socket", errno);
  SetSocketOptions(out.get());
  if (connect(out.get(), address.get(), address.length) == 0) return Status::Ok();
  if (errno != EINPROGRESS) return SocketFailed("connect", errno);
  if (Status status = WaitFor(out.get(), POLLOUT, wait); !status.ok()) return status.With("connect");
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(out.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? Status::Ok() : SocketFailed("connect", error);
}

}  // namespace

Status Dial(const std::vector<Address>& addresses, const Wait& wait, Descriptor& out) {
  Status status;
  for (size_t i = 0; i < addresses.size(); ++i) {
    const Instant now = SteadyNow();
    const double share = SecondsBetween(now, wait.deadline) / static_cast<double>(addresses.size() - i);
    status = Connect(addresses[i], {After(now, std::min(share, kLongestSeconds)), wait.stop}, out);
    if (status.ok() || status.Is(Code::kStopped)) break;
  }
  return status;
}

}  // namespace trainyard::net
