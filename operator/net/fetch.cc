#include "operator/net/fetch.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "operator/base/clock.h"
#include "operator/base/descriptor.h"
#include "operator/net/address.h"
#include "operator/net/http_head.h"
#include "operator/net/wait.h"

namespace trainyard::net {
namespace {

Status Unavailable(const std::string& what) { return Status(Code::kUnavailable, what); }

constexpr size_t kHeadEnd = 4;  // bytes of an empty line and the end of the one before

// One request and its answer. Nothing here waits.
class Exchange {
 public:
  Exchange(size_t target, const FetchLimits& limits)
      : target_(target), max_bytes_(limits.max_bytes), deadline_(After(SteadyNow(), limits.seconds)) {}

  Status Begin(const FetchTarget& to) {
    const std::optional<Address> address = ParseAddress(to.address, to.port);
    if (!address) return Status(Code::kInvalid, to.address + " is no address");
    // HTTP/1.0: the answer comes in one piece, without an encoding, and the connection ends with it.
    request_ = "GET " + to.path + " HTTP/1.0\r\nHost: " + HostPort(to.address, to.port) +
               "\r\nAccept: application/json\r\nConnection: close\r\n\r\n";
    socket_ = Descriptor(socket(address->family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket_.open()) return SocketFailed("socket", errno);
    if (connect(socket_.get(), address->get(), address->length) != 0 && errno != EINPROGRESS)
      return SocketFailed("connect", errno);
    return Status::Ok();
  }

  // Goes on by what has come, or by a part of it: one whose bytes never end keeps nobody else waiting. A value when it
  // has ended.
  std::optional<Result<std::string>> Advance() {
    while (sent_ < request_.size()) {
      const ssize_t sent = send(socket_.get(), request_.data() + sent_, request_.size() - sent_, MSG_NOSIGNAL);
      if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
      if (sent < 0) return SocketFailed("connect", errno);
      sent_ += static_cast<size_t>(sent);
    }
    char part[16 << 10];
    const ssize_t got = recv(socket_.get(), part, sizeof part, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
    if (got < 0) return SocketFailed("read", errno);
    answer_.append(part, static_cast<size_t>(got));
    if (answer_.size() > max_bytes_)
      return Unavailable("the answer is longer than " + std::to_string(max_bytes_) + " bytes");
    if (Status status = ReadHead(); !status.ok()) return status;
    return Body(got == 0);
  }

  size_t target() const { return target_; }
  Instant deadline() const { return deadline_; }
  pollfd Wait() const { return {socket_.get(), static_cast<short>(sent_ < request_.size() ? POLLOUT : POLLIN), 0}; }

 private:
  // Once it is whole. Each byte may come by itself: none is looked at twice.
  Status ReadHead() {
    if (head_) return Status::Ok();
    const size_t from = searched_ - std::min(searched_, kHeadEnd - 1);
    const std::optional<size_t> end = HeadEnd(std::string_view(answer_).substr(from));
    searched_ = answer_.size();
    if (!end) return Status::Ok();
    body_ = from + *end;
    Result<HttpHead> head = ParseHead(std::string_view(answer_).substr(0, body_));
    if (!head.ok()) return head.status();
    if (head->code != 200) return Unavailable("HTTP " + std::to_string(head->code));
    if (head->chunked) return Unavailable("an answer in chunks, which HTTP/1.0 does not have");
    head_ = std::move(*head);
    return Status::Ok();
  }

  std::optional<Result<std::string>> Body(bool ended) const {
    if (!head_) return ended ? std::optional<Result<std::string>>(Unavailable("no whole answer")) : std::nullopt;
    const size_t length = answer_.size() - body_;
    if (head_->length && length >= *head_->length) return answer_.substr(body_, *head_->length);
    if (!ended) return std::nullopt;
    if (head_->length) return Unavailable("the answer was cut");
    return answer_.substr(body_);
  }

  size_t target_;
  size_t max_bytes_;
  Instant deadline_;
  Descriptor socket_;
  std::string request_, answer_;
  size_t sent_ = 0, searched_ = 0;  // of the answer, for the end of its head
  std::optional<HttpHead> head_;
  size_t body_ = 0;  // where it begins, behind the head
};

using OnAnswer = std::function<void(size_t, Result<std::string>)>;

// Waits until one of them can go on, the first deadline, or the stop.
void WaitForAny(const std::vector<Exchange>& running, const StopFlag& stop, std::vector<pollfd>& waits) {
  waits.clear();
  Instant first = After(SteadyNow(), 0.5);
  for (const Exchange& exchange : running) {
    waits.push_back(exchange.Wait());
    first = std::min(first, exchange.deadline());
  }
  waits.push_back({stop.descriptor(), POLLIN, 0});
  const double left = std::max(0.0, SecondsBetween(SteadyNow(), first));
  poll(waits.data(), waits.size(), static_cast<int>(left * 1000) + 1);
}

}  // namespace

void FetchAll(const std::vector<FetchTarget>& targets, const FetchLimits& limits, const StopFlag& stop,
              const OnAnswer& on_answer) {
  std::vector<Exchange> running;
  std::vector<pollfd> waits;
  size_t next = 0;
  while (!stop && (next < targets.size() || !running.empty())) {
    while (next < targets.size() && running.size() < limits.at_once) {
      Exchange exchange(next, limits);
      if (const Status status = exchange.Begin(targets[next]); status.ok()) {
        running.push_back(std::move(exchange));
      } else {
        on_answer(next, status);
      }
      ++next;
    }
    WaitForAny(running, stop, waits);
    const Instant now = SteadyNow();
    std::vector<Exchange> left;
    for (size_t i = 0; i < running.size() && !stop; ++i) {
      std::optional<Result<std::string>> end;
      if (waits[i].revents != 0) end = running[i].Advance();
      if (!end && now >= running[i].deadline())
        end = Status(Code::kDeadline, "no whole answer within " + FormatDuration(limits.seconds));
      if (end) {
        on_answer(running[i].target(), std::move(*end));
      } else {
        left.push_back(std::move(running[i]));
      }
    }
    running = std::move(left);
  }
}

}  // namespace trainyard::net
