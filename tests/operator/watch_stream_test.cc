// What ends a watch's wait, by the real client: until the server accepts it a request's deadline, then its own.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "operator/kube/rest_client.h"
#include "tests/operator/tls_peer.h"

namespace trainyard::kube {
namespace {

constexpr double kShort = 0.5;

class WatchStream : public testing::Test {
 protected:
  Endpoint To(int port) const { return EndpointOf(port, authority_); }
  Status Watch(const Endpoint& endpoint, double request_seconds, WatchOptions options = {}) {
    RestClient client(endpoint, clock_, stop_, {.request_seconds = request_seconds});
    options.timeout_seconds = 60;
    return client.Watch(
        kPods, "", options,
        [this](const WatchEvent&) {
          ++events_;
          return true;
        },
        stop_);
  }
  static constexpr char kHead[] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  static constexpr char kLast[] = "0\r\n\r\n";
  static std::string Chunk() {
    const std::string event = R"({"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"1"}}})"
                              "\n";
    char length[9];
    snprintf(length, sizeof length, "%zx", event.size());
    return std::string(length) + "\r\n" + event + "\r\n";
  }
  void EndsSoon(const Endpoint& endpoint) {
    const Instant start = SteadyNow();
    const Status status = Watch(endpoint, kShort);
    EXPECT_TRUE(status.Is(Code::kDeadline)) << status.ToString();
    EXPECT_LT(SecondsBetween(start, SteadyNow()), 30) << "of the 60 that the watch may take";
  }

  SystemClock clock_;
  StopFlag stop_;
  int events_ = 0;
  TestCertificate authority_ = TestCertificate::Authority("authority");
  TestCertificate server_{"server", &authority_, nullptr, "IP:127.0.0.1"};
};

// All other requests wait for it.
TEST_F(WatchStream, APluginHasNoLongerThanThatOfARequest) {
  Endpoint endpoint = To(1);
  endpoint.exec = ExecPlugin{.command = "/bin/sh", .args = {"-c", "sleep 600"}};
  EndsSoon(endpoint);
}

// A load balancer in front of servers that are all gone, for instance: the cache would be taken for a fresh one.
TEST_F(WatchStream, AServerThatTakesItAndNeverAnswersHasNoLongerThanForARequest) {
  const TlsPeer silent(server_, [](TlsStream& stream) {
    stream.ReadRequest();
    stream.ReadRequest();
  });
  EndsSoon(To(silent.port()));
  const TlsPeer half(server_, [](TlsStream& stream) {
    stream.ReadRequest();
    stream.Send("HTTP/1.1 200 OK\r\n");
    stream.ReadRequest();
  });
  EndsSoon(To(half.port()));
  const TlsPeer refuses(server_, [](TlsStream& stream) {
    stream.ReadRequest();
    stream.Send("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 100\r\n\r\n<html>");
    stream.ReadRequest();
  });
  EndsSoon(To(refuses.port()));
}

// A token that has just been rotated costs no cache.
TEST_F(WatchStream, ATokenThatIsRefusedIsReadAgain) {
  const std::filesystem::path file = std::filesystem::path(testing::TempDir()) / "watch_stream_token";
  std::ofstream(file) << "old";
  const TlsPeer peer(server_, [&](TlsStream& stream) {
    if (stream.ReadRequest().find("Bearer new") == std::string::npos) {
      std::ofstream(file) << "new";
      stream.Answer("{}", "401 Unauthorized");
    } else {
      stream.Answer(R"({"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"1"}}})"
                    "\n");
    }
  });
  Endpoint endpoint = To(peer.port());
  endpoint.token_file = file.string();
  const Status status = Watch(endpoint, 60);
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(events_, 1);
  // One that stays wrong is said after the second time.
  const TlsPeer refuses(server_, [](TlsStream& stream) {
    stream.ReadRequest();
    stream.Answer("{}", "401 Unauthorized");
  });
  endpoint.port = refuses.port();
  EXPECT_TRUE(Watch(endpoint, 60).Is(Code::kUnauthorized));
  std::filesystem::remove(file);
}

TEST_F(WatchStream, OneThatIsAcceptedGoesOnWhileNothingHappens) {
  constexpr double kRequest = 3;  // what is busy takes its time to open one
  const TlsPeer quiet(server_, [](TlsStream& stream) {
    stream.ReadRequest();
    stream.Send(kHead);
    usleep(static_cast<useconds_t>(1.5e6 * kRequest));
    stream.Send(Chunk() + kLast);
  });
  const Status status = Watch(To(quiet.port()), kRequest);
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(events_, 1);
}

TEST_F(WatchStream, OneThatIsSilentSaysSoOnceAndGoesOn) {
  std::atomic<bool> heard = false;
  const TlsPeer quiet(server_, [&](TlsStream& stream) {
    stream.ReadRequest();
    stream.Send(kHead);
    for (int i = 0; i < 1000 && !heard; ++i) usleep(10'000);
    stream.Send(Chunk());
    usleep(static_cast<useconds_t>(2e6 * kShort));
    stream.Send(Chunk() + kLast);
  });
  int silences = 0;
  const auto silent = [&] {
    ++silences;
    EXPECT_EQ(events_, 0);
    heard = true;
    return Status::Ok();
  };
  const Status status = Watch(To(quiet.port()), 60, {.silent = silent, .silent_seconds = kShort});
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(silences, 1);
  EXPECT_EQ(events_, 2);
}

TEST_F(WatchStream, OneThatBeginsAtOnceIsNotSilent) {
  constexpr double kSilence = 2;  // what is busy takes its time to send
  const TlsPeer busy(server_, [](TlsStream& stream) {
    stream.ReadRequest();
    stream.Send(kHead);  // a record of its own, as from the API server
    usleep(100'000);
    stream.Send(Chunk());
    usleep(static_cast<useconds_t>(1.5e6 * kSilence));
    stream.Send(kLast);
  });
  const auto silent = [] { return Status(Code::kInternal, "this watch was not silent"); };
  const Status status = Watch(To(busy.port()), 60, {.silent = silent, .silent_seconds = kSilence});
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(events_, 1);
}

TEST_F(WatchStream, WhatIsFoundInTheSilenceMayEndIt) {
  const TlsPeer quiet(server_, [](TlsStream& stream) {
    stream.ReadRequest();
    stream.Send(kHead);
    stream.ReadRequest();
  });
  const Instant start = SteadyNow();
  const auto silent = [] { return Status(Code::kAhead, "Too large resource version"); };
  const Status status = Watch(To(quiet.port()), 60, {.silent = silent, .silent_seconds = kShort});
  EXPECT_TRUE(status.Is(Code::kAhead)) << status.ToString();
  EXPECT_LT(SecondsBetween(start, SteadyNow()), 30) << "of the 60 that the watch may take";
}

}  // namespace
}  // namespace trainyard::kube
