#include "common/http_endpoint.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <exception>
#include <list>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace trainyard {
namespace {

using Clock = std::chrono::steady_clock;
using Ask = std::function<HttpAnswer(const std::string&)>;
constexpr size_t kMostConnections = 128, kMostRequestBytes = 8192;
constexpr std::chrono::seconds kExchange(5);

const char* Reason(int code) {
  switch (code) {
    case 200:
      return "OK";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

std::string Response(const HttpAnswer& answer) {
  return "HTTP/1.1 " + std::to_string(answer.code) + " " + Reason(answer.code) + "\r\nContent-Type: " + answer.type +
         "\r\nContent-Length: " + std::to_string(answer.body.size()) + "\r\nConnection: close\r\n\r\n" + answer.body;
}

// The answer to a request whose header has come as a whole.
HttpAnswer Answer(const std::string& request, const Ask& ask) {
  const std::string line = request.substr(0, request.find("\r\n"));
  const size_t target = line.find(' ') + 1;
  if (!line.starts_with("GET ")) return {405, "text/plain", "only GET\n"};
  try {
    return ask(line.substr(target, line.find_first_of(" ?", target) - target));
  } catch (const std::exception& error) {
    return {500, "text/plain", std::string(error.what()) + "\n"};
  }
}

// Closed at the end.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

// One exchange: a request is read, then its answer written, then the other side hangs up.
class Connection {
 public:
  explicit Connection(int fd) : fd_(fd) {}

  int fd() const { return fd_.get(); }
  Clock::time_point deadline() const { return deadline_; }
  short waits_for() const { return response_.size() > sent_ ? POLLOUT : POLLIN; }

  // Does what can be done without waiting; false when it is over.
  bool Continue(const Ask& ask) {
    if (response_.empty() && !Read()) return false;
    if (response_.empty() && request_.find("\r\n\r\n") != std::string::npos)
      response_ = Response(Answer(request_, ask));
    if (response_.empty() && request_.size() > kMostRequestBytes)
      response_ = Response({431, "text/plain", "at most 8 KiB\n"});
    return response_.empty() || Write();
  }

 private:
  bool Read() {
    char buffer[4096];
    while (request_.size() <= kMostRequestBytes) {
      const ssize_t n = recv(fd(), buffer, sizeof buffer, MSG_DONTWAIT);
      // Who has said all may say so: the answer goes the other way.
      if (n == 0) return request_.find("\r\n\r\n") != std::string::npos;
      if (n < 0) return errno == EAGAIN || errno == EINTR;
      request_.append(buffer, static_cast<size_t>(n));
    }
    return true;
  }

  bool Write() {
    while (sent_ < response_.size()) {
      const ssize_t n = send(fd(), response_.data() + sent_, response_.size() - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n < 0) return errno == EAGAIN || errno == EINTR;
      sent_ += static_cast<size_t>(n);
      if (sent_ == response_.size()) shutdown(fd(), SHUT_WR);
    }
    // Closing with bytes unread would take the answer back.
    char ignored[4096];
    const ssize_t n = recv(fd(), ignored, sizeof ignored, MSG_DONTWAIT);
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
  }

  const Descriptor fd_;
  const Clock::time_point deadline_ = Clock::now() + kExchange;
  std::string request_, response_;
  size_t sent_ = 0;
};

}  // namespace

class HttpEndpoint::Impl {
 public:
  Impl(int listening, Ask ask) : listening_(listening), wake_(eventfd(0, EFD_CLOEXEC)), ask_(std::move(ask)) {
    if (wake_.get() < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
    thread_ = std::thread([this] { Serve(); });
  }
  ~Impl() {
    eventfd_write(wake_.get(), 1);
    thread_.join();
  }

 private:
  void Serve() {
    fcntl(listening_.get(), F_SETFL, O_NONBLOCK);
    for (;;) {
      // Oldest first, behind the two descriptors of our own.
      std::vector<pollfd> fds = {{wake_.get(), POLLIN, 0}, {listening_.get(), POLLIN, 0}};
      for (const Connection& connection : connections_) fds.push_back({connection.fd(), connection.waits_for(), 0});
      poll(fds.data(), fds.size(), connections_.empty() ? -1 : 100);
      if (fds[0].revents) return;
      size_t i = 2;
      for (auto it = connections_.begin(); it != connections_.end(); ++i) {
        const bool over = Clock::now() > it->deadline() || (fds[i].revents && !it->Continue(ask_));
        it = over ? connections_.erase(it) : std::next(it);
      }
      if (fds[1].revents) Accept();
    }
  }

  // A request mostly comes with its connection: it is answered here and now.
  void Accept() {
    for (size_t taken = 0; taken < kMostConnections; ++taken) {
      const int fd = accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0 && errno != EMFILE && errno != ENFILE) return;
      if (fd < 0 && connections_.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      if (fd < 0 || connections_.size() >= kMostConnections) {
        if (!connections_.empty()) connections_.pop_front();
      }
      if (fd < 0) return;
      connections_.emplace_back(fd);
      if (!connections_.back().Continue(ask_)) connections_.pop_back();
    }
  }

  const Descriptor listening_, wake_;
  const Ask ask_;
  std::list<Connection> connections_;
  std::thread thread_;
};

HttpEndpoint::HttpEndpoint(int listening, Ask answer) : impl_(std::make_unique<Impl>(listening, std::move(answer))) {}

HttpEndpoint::~HttpEndpoint() = default;

}  // namespace trainyard
