#include "trainer/comm/listener.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "trainer/base/error.h"

namespace trainyard {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A bound loopback socket that does not listen yet.
struct Bound {
  Bound() : fd(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bind(fd, reinterpret_cast<sockaddr*>(&where), sizeof where);
    socklen_t size = sizeof where;
    getsockname(fd, reinterpret_cast<sockaddr*>(&where), &size);
    port = ntohs(where.sin_port);
  }
  ~Bound() { close(fd); }
  int fd, port = 0;
};

std::string Failure(const std::string& host, int port, std::chrono::duration<double> deadline) {
  try {
    WaitForListener(host, port, deadline, "rank 0's store");
  } catch (const PeerError& error) {
    return error.what();
  }
  return "";
}

TEST(WaitForListener, ReturnsOnceSomebodyListens) {
  Bound host;
  std::thread late([&] {
    std::this_thread::sleep_for(milliseconds(100));
    listen(host.fd, 1);
  });
  WaitForListener("localhost", host.port, seconds(60), "rank 0's store");
  late.join();
}

TEST(WaitForListener, SaysWhoAndWhy) {
  Bound host;
  EXPECT_EQ(Failure("127.0.0.1", host.port, milliseconds(50)),
            "waited 0.1s for rank 0's store at 127.0.0.1:" + std::to_string(host.port) +
                " (MASTER_ADDR, MASTER_PORT): Connection refused");
  EXPECT_NE(Failure("no-such-host.invalid", 1, milliseconds(50)).find("cannot resolve the name: "), std::string::npos);
}

TEST(WaitForListener, ObeysAStop) {
  Bound host;
  std::atomic<bool> stop = false;
  std::thread late([&] {
    std::this_thread::sleep_for(milliseconds(100));
    stop = true;
  });
  EXPECT_THROW(WaitForListener("127.0.0.1", host.port, seconds(60), "it", [&] { return stop.load(); }), StoppedError);
  late.join();
}

// A full queue of connections: the kernel drops what comes, as a lost machine does.
struct BlackHole : Bound {
  BlackHole() {
    listen(fd, 0);
    for (int& client : queued) {
      client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
      sockaddr_in where{};
      where.sin_family = AF_INET;
      where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      where.sin_port = htons(static_cast<uint16_t>(port));
      connect(client, reinterpret_cast<sockaddr*>(&where), sizeof where);
    }
  }
  ~BlackHole() {
    for (const int client : queued) close(client);
  }
  int queued[4];
};

TEST(WaitForListener, ObeysAStopWhileNobodyAnswers) {
  const BlackHole host;
  int asked = 0;
  EXPECT_THROW(WaitForListener("127.0.0.1", host.port, seconds(60), "it", [&] { return ++asked > 3; }), StoppedError);
}

TEST(WaitForListener, ATryEndsWithTheDeadline) {
  const BlackHole host;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_NE(Failure("127.0.0.1", host.port, seconds(1)).find(": no answer"), std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(5));
}

}  // namespace
}  // namespace trainyard
