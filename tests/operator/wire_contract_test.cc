// What the REST client puts on the wire, and on the socket.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "operator/kube/rest_client.h"
#include "tests/operator/max_resident.h"
#include "tests/operator/scripted_client.h"
#include "tests/operator/tls_peer.h"

namespace trainyard::kube {
namespace {

class WireContract : public testing::Test {
 protected:
  Endpoint To(int port) const { return EndpointOf(port, authority_); }
  // What a call sends: its first line, then the rest.
  template <class Call>
  std::string Sent(const Call& call) {
    std::string request;
    const TlsPeer peer(server_, [&](TlsStream& stream) {
      request = stream.ReadRequest();
      stream.Answer("{}");
    });
    RestClient client(To(peer.port()), clock_, stop_, {.request_seconds = 20});
    call(client);
    return request;
  }

  SystemClock clock_;
  StopFlag stop_;
  TestCertificate authority_ = TestCertificate::Authority("authority");
  TestCertificate server_{"server", &authority_, nullptr, "IP:127.0.0.1"};
};

TEST_F(WireContract, AWatchAsksForBookmarksATimeAndItsLabel) {
  const std::string sent = Sent([&](RestClient& client) {
    (void)client.Watch(
        kPods, "", {.label_selector = "trainyard.dev/managed=true", .resource_version = "12", .timeout_seconds = 333},
        [](const WatchEvent&) { return true; }, stop_);
  });
  EXPECT_TRUE(
      sent.starts_with("GET /api/v1/pods?watch=1&allowWatchBookmarks=true&labelSelector=trainyard.dev/"
                       "managed%3Dtrue&resourceVersion=12&timeoutSeconds=333 "))
      << sent;
}

// A version and a limit alone would be what there was then, and a watch from there gone at once, again and again.
TEST_F(WireContract, AListOfAVersionAsksForWhatIsNotOlder) {
  const auto list = [&](const std::string& version) {
    return Sent([&](RestClient& client) {
      (void)client.List(kPods, "", {.resource_version = version, .limit = 500}, [](const Json&) {});
    });
  };
  EXPECT_TRUE(list("7").starts_with("GET /api/v1/pods?resourceVersion=7&resourceVersionMatch=NotOlderThan&limit=500 "));
  EXPECT_TRUE(list("0").starts_with("GET /api/v1/pods?resourceVersion=0&limit=500 "));
  EXPECT_TRUE(list("").starts_with("GET /api/v1/pods?limit=500 "));
}

TEST_F(WireContract, AStatusIsAMergePatchWithItsVersionUnderOurName) {
  const std::string sent = Sent([&](RestClient& client) {
    const Json patch = {{"metadata", {{"resourceVersion", "7"}}}, {"status", {{"phase", "Running"}}}};
    (void)client.MergePatch(kTrainingJobs, "default", "job", "status", patch, {});
  });
  EXPECT_TRUE(
      sent.starts_with("PATCH /apis/trainyard.dev/v1alpha1/namespaces/default/trainingjobs/job/status?fieldManager="
                       "trainyard-operator "))
      << sent;
  EXPECT_NE(sent.find("Content-Type: application/merge-patch+json"), std::string::npos) << sent;
  EXPECT_TRUE(sent.ends_with(R"({"metadata":{"resourceVersion":"7"},"status":{"phase":"Running"}})")) << sent;
}

TEST_F(WireContract, ADeletionNamesTheUid) {
  const std::string sent =
      Sent([&](RestClient& client) { (void)client.Delete(kPods, "default", "a", {.uid = "u", .grace_seconds = 0}); });
  EXPECT_TRUE(sent.starts_with("DELETE /api/v1/namespaces/default/pods/a ")) << sent;
  EXPECT_NE(sent.find(R"("preconditions":{"uid":"u"})"), std::string::npos) << sent;
  EXPECT_NE(sent.find(R"("gracePeriodSeconds":0)"), std::string::npos) << sent;
}

// What a server, or who stands in its place, may send for ever: `again` follows `first` until nobody reads any more.
TEST_F(WireContract, EndlessAndPackedAnswersAreRefusedInBoundedMemory) {
  const std::string much(1 << 16, 'x'), chunk = "10000\r\n" + much + "\r\n";
  const std::string ok = "HTTP/1.1 200 OK\r\n", chunked = ok + "Transfer-Encoding: chunked\r\n\r\n";
  const struct {
    const char* name;
    std::string first, again;
  } cases[] = {
      {"a head", ok + "X: ", much},
      {"fields", ok, "X: y\r\n"},
      {"a body", ok + "\r\n", much},
      {"a length", ok + "Content-Length: 1000000000000\r\n\r\n", much},
      {"chunks", chunked, chunk},
      {"a chunk", chunked + "fffffffffff\r\n", much},
      {"the length of a chunk", chunked, "0000"},
      {"gzip", ok + "Content-Encoding: gzip\r\nContent-Length: 1000\r\n\r\n", std::string(1000, '\x1f')},
      {"deflate in chunks", ok + "Content-Encoding: deflate\r\nTransfer-Encoding: chunked\r\n\r\n", chunk},
      {"a transfer that is packed", ok + "Transfer-Encoding: gzip, chunked\r\n\r\n", chunk},
      {"a body of an error", "HTTP/1.1 500 Internal Server Error\r\n\r\n", much},
  };
  const int64_t before = MaxResidentMiB();
  for (const auto& test : cases) {
    const TlsPeer peer(server_, [&](TlsStream& stream) {
      stream.ReadRequest();
      if (!stream.Send(test.first)) return;
      while (stream.Send(test.again)) {
      }
    });
    RestClient client(To(peer.port()), clock_, stop_, {.request_seconds = 60});
    const Result<Json> got = client.Get(kPods, "default", "a");
    EXPECT_FALSE(got.ok()) << test.name;
    EXPECT_FALSE(got.status().Is(Code::kDeadline)) << test.name << ": " << got.status().ToString();
    const Status watched = client.Watch(
        kPods, "", {.timeout_seconds = 60}, [](const WatchEvent&) { return true; }, stop_);
    EXPECT_FALSE(watched.ok()) << test.name;
    EXPECT_FALSE(watched.Is(Code::kDeadline)) << test.name << ": " << watched.ToString();
    const Status listed = client.List(kPods, "", {}, [](const Json&) {}).status();
    EXPECT_FALSE(listed.ok() || listed.Is(Code::kDeadline)) << test.name << ": " << listed.ToString();
  }
  EXPECT_LT(MaxResidentMiB() - before, kMemoryFactor * 200);
}

// A server whose answer about "slow" stops before its end, when more has gone out than sockets hold, until `rest`.
// The answer about "long" is a tenth of that, and comes at once.
struct SlowServer {
  void Serve(TlsStream& stream) {
    for (;;) {
      const std::string request = stream.ReadRequest();
      if (request.empty()) return;
      if (request.find("/slow ") == std::string::npos) {
        stream.Answer(request.find("/long ") == std::string::npos ? "{}"
                                                                  : '"' + std::string(size_t{1} << 20, 'x') + '"');
        continue;
      }
      const std::string much(size_t{14} << 20, 'x');
      if (!stream.Send("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(much.size() + 2) + "\r\n\r\n\"" + much))
        return;
      held = true;
      while (!rest) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      if (!stream.Send("\"")) return;
    }
  }
  std::atomic<bool> held{false}, rest{false};
};

// All of the operator's workers may ask at once for what users have made as long as etcd takes it.
TEST_F(WireContract, LongAnswersAreHeldOneAtATime) {
  SlowServer server;
  const TlsPeer peer(server_, [&](TlsStream& stream) { server.Serve(stream); });
  RestClient client(To(peer.port()), clock_, stop_, {.request_seconds = 120});
  std::thread slow([&] { EXPECT_TRUE(client.Get(kPods, "default", "slow").ok()); });
  while (!server.held) std::this_thread::yield();
  EXPECT_TRUE(client.Get(kPods, "default", "short").ok()) << "does not wait";
  std::atomic<bool> done{false};
  std::thread second([&] {
    EXPECT_TRUE(client.Get(kPods, "default", "long").ok());
    done = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_FALSE(done) << "beside another";
  server.rest = true;
  slow.join();
  second.join();
}

TEST_F(WireContract, WhoWaitsToReadALongAnswerEndsWithTheStop) {
  SlowServer server;
  const TlsPeer peer(server_, [&](TlsStream& stream) { server.Serve(stream); });
  RestClient client(To(peer.port()), clock_, stop_, {.request_seconds = 120});
  Code slow_end = Code::kOk, second_end = Code::kOk;
  std::thread slow([&] { slow_end = client.Get(kPods, "default", "slow").status().code(); });
  while (!server.held) std::this_thread::yield();
  std::thread second([&] { second_end = client.Get(kPods, "default", "long").status().code(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  stop_.Set();
  slow.join();
  second.join();
  server.rest = true;
  EXPECT_EQ(slow_end, Code::kStopped);
  EXPECT_EQ(second_end, Code::kStopped);
}

// The socket of this process that is connected to the port; -1 when there is none.
int SocketTo(int port) {
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 && peer.sin_family == AF_INET &&
        ntohs(peer.sin_port) == port)
      return fd;
  }
  return -1;
}

int Option(int socket, int level, int name) {
  int value = 0;
  socklen_t size = sizeof value;
  EXPECT_EQ(getsockopt(socket, level, name, &value, &size), 0);
  return value;
}

TEST_F(WireContract, AHalfOpenConnectionEndsByKeepaliveWithinHalfAMinute) {
  std::atomic<bool> there{false};
  const Peer peer([&](int connection) {
    there = true;
    Peer::Silent(connection);
  });
  RestClient client(To(peer.port()), clock_, stop_);
  std::thread watch([&] {
    (void)client.Watch(
        kPods, "", {.timeout_seconds = 600}, [](const WatchEvent&) { return true; }, stop_);
  });
  while (!there) std::this_thread::yield();
  const int socket = SocketTo(peer.port());
  ASSERT_GE(socket, 0);
  EXPECT_EQ(Option(socket, SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_LE(Option(socket, IPPROTO_TCP, TCP_KEEPIDLE) +
                Option(socket, IPPROTO_TCP, TCP_KEEPINTVL) * Option(socket, IPPROTO_TCP, TCP_KEEPCNT),
            30);
  EXPECT_GT(Option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
  EXPECT_LE(Option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT), 30'000);
  stop_.Set();
  watch.join();
}

}  // namespace
}  // namespace trainyard::kube
