// A peer on loopback that behaves as badly as a test wants: a thread per connection.
#ifndef TRAINYARD_TESTS_OPERATOR_PEER_H_
#define TRAINYARD_TESTS_OPERATOR_PEER_H_

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "operator/net/address.h"

namespace trainyard {

class Peer {
 public:
  // `serve` has one connection, which is closed behind it; reads and writes fail once the peer is destroyed.
  explicit Peer(std::function<void(int)> serve, const std::string& address = "127.0.0.1", int port = 0)
      : serve_(std::move(serve)) {
    const net::Address where = *net::ParseAddress(address, port);
    listener_ = socket(where.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener_, where.get(), where.length) != 0 || listen(listener_, 1024) != 0) {
      ADD_FAILURE() << address << ": cannot listen";
      return;
    }
    net::Address bound;
    bound.length = sizeof bound.storage;
    getsockname(listener_, reinterpret_cast<sockaddr*>(&bound.storage), &bound.length);
    port_ = ntohs(where.family() == AF_INET ? reinterpret_cast<sockaddr_in*>(&bound.storage)->sin_port
                                            : reinterpret_cast<sockaddr_in6*>(&bound.storage)->sin6_port);
    thread_ = std::thread([this] { Accept(); });
  }
  ~Peer() {
    stopping_ = true;
    shutdown(listener_, SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
    {
      const std::lock_guard lock(mutex_);
      for (const int connection : open_) shutdown(connection, SHUT_RDWR);
    }
    for (std::thread& thread : threads_) thread.join();
    close(listener_);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  int port() const { return port_; }
  // How many connections there have been.
  int connections() const { return connections_; }

  // One that accepts and never says anything.
  static void Silent(int connection) {
    char byte;
    while (recv(connection, &byte, 1, 0) > 0) {
    }
  }
  // Reads a request without a body; false when the other side has gone.
  static bool ReadRequest(int connection, std::string* text = nullptr) {
    std::string request;
    char byte;
    while (!request.ends_with("\r\n\r\n")) {
      if (recv(connection, &byte, 1, 0) <= 0) return false;
      request += byte;
    }
    if (text) *text = request;
    return true;
  }
  static bool Send(int connection, const std::string& text) {
    return send(connection, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }

 private:
  void Accept() {
    for (;;) {
      const int connection = accept(listener_, nullptr, nullptr);
      if (connection < 0 || stopping_) {
        if (connection >= 0) close(connection);
        return;
      }
      ++connections_;
      const std::lock_guard lock(mutex_);
      open_.insert(connection);
      threads_.emplace_back([this, connection] {
        serve_(connection);
        const std::lock_guard inner(mutex_);
        open_.erase(connection);
        close(connection);
      });
    }
  }

  const std::function<void(int)> serve_;
  int listener_ = -1, port_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<int> connections_{0};
  std::mutex mutex_;
  std::set<int> open_;
  std::vector<std::thread> threads_;
  std::thread thread_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TESTS_OPERATOR_PEER_H_
