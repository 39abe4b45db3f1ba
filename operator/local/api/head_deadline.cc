#include "operator/local/api/head_deadline.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "operator/base/descriptor.h"

namespace trainyard::local {
namespace {

int PortOf(int file, decltype(getsockname)* name) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  const bool known = name(file, reinterpret_cast<sockaddr*>(&address), &size) == 0 && address.sin_family == AF_INET;
  return known ? ntohs(address.sin_port) : 0;
}

int PeerOf(int file) { return PortOf(file, getpeername); }

}  // namespace

std::map<int, int> ConnectionsTo(int port) {
  std::map<int, int> found;
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc/self/fd", error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const int file = std::atoi(entry->path().filename().c_str());
    const int peer = PortOf(file, getsockname) == port ? PeerOf(file) : 0;
    if (peer != 0) found[file] = peer;
  }
  return found;
}

void HeadDeadline::Sweep(int port) {
  const Instant now = SteadyNow();
  // Before the look: what Answering says of one that begins meanwhile comes behind it.
  const MutexLock lock(mutex_);
  std::map<int, Connection> left;
  for (const auto& [file, peer] : ConnectionsTo(port)) {
    const auto known = connections_.find(file);
    const bool same = known != connections_.end() && known->second.peer == peer;
    const Connection connection =
        same ? known->second : Connection{.peer = peer, .answering = false, .deadline = After(now, kHeadSeconds)};
    left[file] = connection;
    if (connection.answering || now < connection.deadline) continue;
    // Its thread may be closing it, and the next one get its number: a copy stays what it is.
    const Descriptor copy(fcntl(file, F_DUPFD_CLOEXEC, 0));
    if (PeerOf(copy.get()) == peer) shutdown(copy.get(), SHUT_RDWR);
  }
  connections_ = std::move(left);
}

void HeadDeadline::Answering(int file) {
  const int peer = PeerOf(file);
  const MutexLock lock(mutex_);
  connections_[file] = {.peer = peer, .answering = true, .deadline = {}};
}

void HeadDeadline::Answered(int file) {
  const int peer = PeerOf(file);
  const MutexLock lock(mutex_);
  connections_[file] = {.peer = peer, .answering = false, .deadline = After(SteadyNow(), kNextHeadSeconds)};
}

}  // namespace trainyard::local
