#include "trainer/metrics/status_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <list>
#include <thread>

#include "operator/api/worker_env.h"
#include "trainer/base/environment.h"
#include "trainer/base/listen.h"
#include "trainer/base/text.h"

namespace trainyard {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMostConnections = 128, kMostRequestBytes = 8192;
constexpr std::chrono::seconds kExchange(5);

std::string Response(int code, const char* reason, const char* type, const std::string& body) {
  return Format("HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n", code, reason,
                type, body.size()) +
         body;
}

// The answer to a request whose header has come as a whole.
std::string Answer(const std::string& request, const std::vector<RankStatus>& ranks) {
  const std::string line = request.substr(0, request.find("\r\n"));
  const size_t target = line.find(' ') + 1;
  const std::string path = line.substr(target, line.find_first_of(" ?", target) - target);
  if (!line.starts_with("GET ")) return Response(405, "Method Not Allowed", "text/plain", "only GET\n");
  if (path == "/status" && (ranks.empty() || !ranks[0].Reported()))
    return Response(503, "Service Unavailable", "application/json", "{}");
  if (path == "/status") return Response(200, "OK", "application/json", ranks[0].ToStatusJson().dump());
  if (path == "/metrics") return Response(200, "OK", "text/plain; version=0.0.4", Exposition(ranks));
  if (path == "/healthz") return Response(200, "OK", "text/plain", "ok\n");
  if (path == "/readyz") {
    const bool ready = !ranks.empty() && ranks[0].phase != "starting" && ranks[0].phase != "rendezvous";
    return ready ? Response(200, "OK", "text/plain", "ok\n")
                 : Response(503, "Service Unavailable", "text/plain", "not ready\n");
  }
  return Response(404, "Not Found", "text/plain", "/status, /metrics, /healthz, /readyz\n");
}

// One exchange: a request is read, then its answer written, then the other side hangs up.
class Connection {
 public:
  explicit Connection(int fd) : fd_(fd) {}
  ~Connection() { close(fd_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int fd() const { return fd_; }
  Clock::time_point deadline() const { return deadline_; }
  short waits_for() const { return response_.size() > sent_ ? POLLOUT : POLLIN; }

  // Does what can be done without waiting; false when it is over.
  bool Continue(const std::function<std::vector<RankStatus>()>& ranks) {
    if (response_.empty() && !Read()) return false;
    if (response_.empty() && request_.find("\r\n\r\n") != std::string::npos) response_ = Answer(request_, ranks());
    if (response_.empty() && request_.size() > kMostRequestBytes)
      response_ = Response(431, "Request Header Fields Too Large", "text/plain", "at most 8 KiB\n");
    return response_.empty() || Write();
  }

 private:
  bool Read() {
    char buffer[4096];
    while (request_.size() <= kMostRequestBytes) {
      const ssize_t n = recv(fd_, buffer, sizeof buffer, MSG_DONTWAIT);
      if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EINTR);
      request_.append(buffer, static_cast<size_t>(n));
    }
    return true;
  }

  bool Write() {
    while (sent_ < response_.size()) {
      const ssize_t n = send(fd_, response_.data() + sent_, response_.size() - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n < 0) return errno == EAGAIN || errno == EINTR;
      sent_ += static_cast<size_t>(n);
      if (sent_ == response_.size()) shutdown(fd_, SHUT_WR);
    }
    // Closing with bytes unread would take the answer back.
    char ignored[4096];
    const ssize_t n = recv(fd_, ignored, sizeof ignored, MSG_DONTWAIT);
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
  }

  const int fd_;
  const Clock::time_point deadline_ = Clock::now() + kExchange;
  std::string request_, response_;
  size_t sent_ = 0;
};

}  // namespace

class StatusServer::Impl {
 public:
  Impl(int listening, std::function<std::vector<RankStatus>()> ranks)
      : listening_(listening), wake_(eventfd(0, EFD_CLOEXEC)), ranks_(std::move(ranks)), thread_([this] { Serve(); }) {}
  ~Impl() {
    eventfd_write(wake_, 1);
    thread_.join();
    close(wake_);
    close(listening_);
  }

 private:
  void Serve() {
    fcntl(listening_, F_SETFL, O_NONBLOCK);
    for (;;) {
      // Oldest first, behind the two descriptors of our own.
      std::vector<pollfd> fds = {{wake_, POLLIN, 0}, {listening_, POLLIN, 0}};
      for (const Connection& connection : connections_) fds.push_back({connection.fd(), connection.waits_for(), 0});
      poll(fds.data(), fds.size(), connections_.empty() ? -1 : 100);
      if (fds[0].revents) return;
      size_t i = 2;
      for (auto it = connections_.begin(); it != connections_.end(); ++i) {
        const bool over = Clock::now() > it->deadline() || (fds[i].revents && !it->Continue(ranks_));
        it = over ? connections_.erase(it) : std::next(it);
      }
      if (fds[1].revents) Accept();
    }
  }

  // A request mostly comes with its connection: it is answered here and now.
  void Accept() {
    for (size_t taken = 0; taken < kMostConnections; ++taken) {
      const int fd = accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0 && errno != EMFILE && errno != ENFILE) return;
      if (fd < 0 && connections_.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      if (fd < 0 || connections_.size() >= kMostConnections) {
        if (!connections_.empty()) connections_.pop_front();
      }
      if (fd < 0) return;
      connections_.emplace_back(fd);
      if (!connections_.back().Continue(ranks_)) connections_.pop_back();
    }
  }

  const int listening_, wake_;
  const std::function<std::vector<RankStatus>()> ranks_;
  std::list<Connection> connections_;
  std::thread thread_;
};

StatusServer::StatusServer(const std::string& address, int port, std::function<std::vector<RankStatus>()> ranks) {
  const auto [fd, bound] = Listen("the status port (TRAINYARD_STATUS_PORT)", address, port);
  port_ = bound;
  impl_ = std::make_unique<Impl>(fd, std::move(ranks));
}

StatusServer::~StatusServer() = default;

std::string StatusAddressFromEnvironment() {
  const std::string address = EnvText(env::kPodIp);
  return address.empty() ? "127.0.0.1" : address;
}

int StatusPortFromEnvironment() { return EnvPort(env::kStatusPort).value_or(0); }

}  // namespace trainyard
