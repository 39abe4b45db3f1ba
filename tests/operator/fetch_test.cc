#include "operator/net/fetch.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "operator/base/clock.h"
#include "operator/net/connection.h"
#include "tests/operator/peer.h"

namespace trainyard::net {
namespace {

std::map<size_t, Result<std::string>> Fetch(const std::vector<FetchTarget>& targets, const FetchLimits& limits = {}) {
  std::map<size_t, Result<std::string>> answers;
  const StopFlag stop;
  FetchAll(targets, limits, stop, [&](size_t target, Result<std::string> body) {
    EXPECT_TRUE(answers.emplace(target, std::move(body)).second) << "one answer each";
  });
  EXPECT_EQ(answers.size(), targets.size());
  return answers;
}

Result<std::string> FetchOne(const Peer& peer, const FetchLimits& limits = {}) {
  return Fetch({{"127.0.0.1", peer.port(), "/status"}}, limits).at(0);
}

Result<std::string> Answered(const std::string& text) {
  const Peer peer([&](int connection) {
    if (Peer::ReadRequest(connection)) Peer::Send(connection, text);
  });
  return FetchOne(peer);
}

TEST(Fetch, ReadsABodyWithAndWithoutALength) {
  EXPECT_EQ(Answered("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").value(), "hello");
  EXPECT_EQ(Answered("HTTP/1.0 200 OK\r\nServer: x\r\n\r\nhello").value(), "hello");
  EXPECT_EQ(Answered("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").value(), "");
}

TEST(Fetch, WhatIsNoAnswerIsAnError) {
  for (const char* text :
       {"", "hello", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 404 Not Found\r\n\r\n",
        "HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n\x1f\x8b", "HTTP/1.1 abc\r\n\r\n",
        "HTTP/1.1 2009 x\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"})
    EXPECT_FALSE(Answered(text).ok()) << text;
}

TEST(Fetch, AnEndlessAnswerIsCutAtItsLimit) {
  std::atomic<size_t> sent{0};
  const Peer peer([&](int connection) {
    Peer::ReadRequest(connection);
    Peer::Send(connection, "HTTP/1.1 200 OK\r\n\r\n");
    while (Peer::Send(connection, std::string(4096, 'x'))) sent += 4096;
  });
  const auto answer = FetchOne(peer, {.seconds = 60});
  EXPECT_NE(answer.status().message().find("longer than 65536 bytes"), std::string::npos) << answer.status().ToString();
  EXPECT_LT(sent, 16u << 20) << "what the kernel's buffers hold, not gigabytes";
}

TEST(Fetch, ADripEndsAtTheDeadline) {
  const Peer peer([&](int connection) {
    Peer::ReadRequest(connection);
    for (int i = 0; i < 600 && Peer::Send(connection, "x"); ++i) usleep(100'000);
  });
  const Instant start = SteadyNow();
  EXPECT_TRUE(FetchOne(peer, {.seconds = 0.5}).status().Is(Code::kDeadline));
  EXPECT_LT(SecondsBetween(start, SteadyNow()), 30) << "not the minute that it drips";
}

TEST(Connection, BytesThatNeverPauseEndAtTheDeadlineToo) {
  const Peer peer([](int connection) {
    Peer::Send(connection, std::string(4096, 'x'));
    Peer::Silent(connection);
  });
  const StopFlag stop;
  const auto connection = Connection::Open({.host = "127.0.0.1", .port = peer.port(), .server_name = "", .proxy = {}},
                                           nullptr, Wait::For(60, stop));
  ASSERT_TRUE(connection.ok()) << connection.status().ToString();
  char byte;
  EXPECT_TRUE((*connection)->Read(&byte, 1, Wait::For(60, stop)).ok());
  EXPECT_TRUE((*connection)->Read(&byte, 1, Wait::For(0, stop)).status().Is(Code::kDeadline)) << "though there is more";
}

// Serially they would take five minutes.
TEST(Fetch, SilentAddressesCostOneDeadlineTogether) {
  const Peer silent(Peer::Silent);
  const Peer good([](int connection) {
    if (Peer::ReadRequest(connection)) Peer::Send(connection, "HTTP/1.1 200 OK\r\n\r\ngood");
  });
  std::vector<FetchTarget> targets(300, {"127.0.0.1", silent.port(), "/"});
  targets.push_back({"127.0.0.1", good.port(), "/"});
  const Instant start = SteadyNow();
  const auto answers = Fetch(targets, {.seconds = 1, .at_once = 100});
  EXPECT_LT(SecondsBetween(start, SteadyNow()), 60);
  EXPECT_TRUE(answers.at(0).status().Is(Code::kDeadline));
  EXPECT_EQ(answers.at(300).value(), "good");
}

TEST(Fetch, NoMoreAtOnceThanAllowed) {
  std::atomic<int> now{0}, most{0};
  const Peer peer([&](int connection) {
    most = std::max<int>(most, ++now);
    Peer::Silent(connection);
    --now;
  });
  Fetch(std::vector<FetchTarget>(9, {"127.0.0.1", peer.port(), "/"}), {.seconds = 0.3, .at_once = 3});
  EXPECT_LE(most, 6) << "three, and the three before whose end the peer has not seen yet";
}

TEST(Fetch, AStopEndsItInTheMiddle) {
  const Peer silent(Peer::Silent);
  StopFlag stop;
  std::thread stopper([&] {
    while (silent.connections() == 0) usleep(1000);
    stop.Set();
  });
  const Instant start = SteadyNow();
  FetchAll({{"127.0.0.1", silent.port(), "/"}}, {.seconds = 600}, stop,
           [](size_t, const Result<std::string>&) { ADD_FAILURE() << "there is no answer"; });
  EXPECT_LT(SecondsBetween(start, SteadyNow()), 60);
  stopper.join();
}

TEST(Fetch, SpeaksIPv6AndRefusesNames) {
  std::string request;
  const Peer peer(
      [&](int connection) {
        if (Peer::ReadRequest(connection, &request)) Peer::Send(connection, "HTTP/1.1 200 OK\r\n\r\nsix");
      },
      "::1");
  const auto answers = Fetch({{"::1", peer.port(), "/"}, {"localhost", peer.port(), "/"}, {"127.0.0.1", 1, "/"}});
  EXPECT_EQ(answers.at(0).value(), "six");
  EXPECT_NE(request.find("Host: [::1]:" + std::to_string(peer.port())), std::string::npos) << request;
  EXPECT_TRUE(answers.at(1).status().Is(Code::kInvalid)) << "no name is looked up";
  EXPECT_TRUE(answers.at(2).status().Is(Code::kUnavailable)) << "nobody listens there";
}

}  // namespace
}  // namespace trainyard::net
