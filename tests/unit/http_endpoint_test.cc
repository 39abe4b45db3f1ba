#include "common/http_endpoint.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>
#include <system_error>
#include <vector>

namespace trainyard {
namespace {

class HttpEndpointTest : public testing::Test {
 protected:
  HttpEndpointTest() {
    const int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    where_.sin_family = AF_INET;
    where_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof where_;
    EXPECT_EQ(bind(listening, reinterpret_cast<sockaddr*>(&where_), size), 0);
    EXPECT_EQ(listen(listening, 1024), 0);
    getsockname(listening, reinterpret_cast<sockaddr*>(&where_), &size);
    endpoint_ = std::make_unique<HttpEndpoint>(listening, [](const std::string& path) -> HttpAnswer {
      if (path == "/throws") throw std::runtime_error("a defect");
      if (path == "/large") return {.body = std::string(4 << 20, 'x')};
      return path == "/ok" ? HttpAnswer{.body = "ok"} : HttpAnswer{.code = 404, .body = path};
    });
  }
  ~HttpEndpointTest() override {
    for (const int connection : open_) close(connection);
  }
  // A connection that has said `text`. Reads of it end after a minute.
  int Open(const std::string& text) {
    const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    open_.push_back(connection);
    const timeval minute{.tv_sec = 60, .tv_usec = 0};
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &minute, sizeof minute);
    EXPECT_EQ(connect(connection, reinterpret_cast<sockaddr*>(&where_), sizeof where_), 0);
    EXPECT_EQ(send(connection, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
    return connection;
  }
  // All that comes, until the other side hangs up.
  static std::string Read(int connection) {
    std::string text;
    char part[4096];
    for (ssize_t got; (got = recv(connection, part, sizeof part, 0)) > 0;) text.append(part, static_cast<size_t>(got));
    shutdown(connection, SHUT_RDWR);
    return text;
  }
  std::string Ask(const std::string& request) { return Read(Open(request)); }
  static std::string LineOf(const std::string& answer) { return answer.substr(0, answer.find("\r\n")); }

  sockaddr_in where_{};
  std::vector<int> open_;
  std::unique_ptr<HttpEndpoint> endpoint_;
};

TEST_F(HttpEndpointTest, AnswersByPath) {
  EXPECT_EQ(Ask("GET /ok?x=1 HTTP/1.1\r\nHost: a\r\n\r\n"),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
  EXPECT_EQ(LineOf(Ask("GET /other HTTP/1.1\r\n\r\n")), "HTTP/1.1 404 Not Found");
  EXPECT_EQ(LineOf(Ask("POST /ok HTTP/1.1\r\n\r\n")), "HTTP/1.1 405 Method Not Allowed");
  EXPECT_EQ(LineOf(Ask("\r\n\r\n")), "HTTP/1.1 405 Method Not Allowed");
  EXPECT_EQ(LineOf(Ask("GET /throws HTTP/1.1\r\n\r\n")), "HTTP/1.1 500 Internal Server Error");
  EXPECT_EQ(LineOf(Ask("GET /" + std::string(9000, 'x'))), "HTTP/1.1 431 Request Header Fields Too Large");
  EXPECT_GT(Ask("GET /large HTTP/1.1\r\n\r\n").size(), 4u << 20);
}

TEST_F(HttpEndpointTest, WhoeverHasSaidAllAndSaysSoIsAnswered) {
  for (int i = 0; i < 20; ++i) {
    const int connection = Open("GET /ok HTTP/1.0\r\n\r\n");
    shutdown(connection, SHUT_WR);
    EXPECT_EQ(LineOf(Read(connection)), "HTTP/1.1 200 OK");
  }
  const int half = Open("GET /ok HTTP/1.0\r\n");
  shutdown(half, SHUT_WR);
  EXPECT_EQ(Read(half), "") << "there is nothing to wait for";
}

TEST_F(HttpEndpointTest, WhoeverSaysNothingMakesWayForWhoeverAsks) {
  const int first = Open("");
  for (int i = 0; i < 300; ++i) Open(i % 2 == 0 ? "" : "GET /ok HTTP/1.1\r\n");
  EXPECT_EQ(LineOf(Ask("GET /ok HTTP/1.1\r\n\r\n")), "HTTP/1.1 200 OK");
  EXPECT_EQ(Read(first), "") << "the oldest was hung up on";
}

TEST_F(HttpEndpointTest, AStopWaitsForNobody) {
  Open("");
  Open("GET /large HTTP/1.1\r\n\r\n");
  endpoint_.reset();
}

// Without the one it wakes its thread by, it could never end.
TEST(HttpEndpoint, WithoutADescriptorOfItsOwnThereIsNone) {
  const int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(listen(listening, 1), 0);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_THROW(HttpEndpoint(listening, [](const std::string&) { return HttpAnswer(); }), std::system_error);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(fcntl(listening, F_GETFD), -1) << "the socket was given away";
}

}  // namespace
}  // namespace trainyard
