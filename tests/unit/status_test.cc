#include "trainer/metrics/status.h"

#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <list>
#include <thread>

#include "trainer/base/error.h"
#include "trainer/metrics/status_server.h"

namespace trainyard {
namespace {

RankStatus Example(int rank) {
  RankStatus s;
  s.job_uid = "u";
  s.attempt = 2;
  s.rank = rank;
  s.world = 2;
  s.phase = "training";
  s.step = 12;
  s.total_steps = 20;
  s.last_progress_time = 1e9;
  s.startup = {.step = 10, .rendezvous_seconds = 1.5, .first_step_seconds = 0.25};
  s.phase_seconds = {{"data", 1}, {"forward", 3}};
  s.warnings = {"w"};
  return s;
}

TEST(RankStatus, JsonComesBack) {
  const RankStatus s = Example(1);
  EXPECT_EQ(RankStatus::FromJson(s.ToJson()).ToJson(), s.ToJson());
  EXPECT_EQ(RankStatus::FromJson(s.ToJson()).ToStatusJson(), s.ToStatusJson());
  RankStatus full = s;
  full.last_step_time = full.samples_per_second = full.eta_seconds = full.loss = full.learning_rate = full.grad_norm =
      3;
  full.tokens_per_second = full.mfu = full.loss_scale = full.host_memory_bytes = 4;
  full.checkpoint.step = full.checkpoint.time = 5;
  full.checkpoint.durable = true;
  full.checkpoint.duration_seconds = full.checkpoint_stall_seconds = 6;
  full.checkpoint.bytes = 7;
  full.steps_ok = full.steps_skipped = full.steps_nonfinite = full.micro_batch = 8;
  full.telemetry_dropped = full.cache_reads = {{"x", 9}};
  full.data_seconds = {{"read", 10}, {"wait", 11}};
  const RankStatus back = RankStatus::FromJson(full.ToJson());
  EXPECT_EQ(back.ToStatusJson(), full.ToStatusJson());
  // The age of a checkpoint moves on between the two.
  const auto but_the_age = [](const std::string& text) {
    const size_t at = text.find("trainyard_checkpoint_age_seconds{");
    return text.substr(0, at) + text.substr(text.find('\n', at));
  };
  EXPECT_EQ(but_the_age(Exposition({back})), but_the_age(Exposition({full})));
  RankStatus nan = Example(0);
  nan.loss = NAN;  // null in JSON
  EXPECT_EQ(RankStatus::FromJson(nlohmann::json::parse(nan.ToJson().dump())).loss, std::nullopt);
}

TEST(StatusBoard, WhatTakesLongAndGetsOnIsProgressButInTrainingStepsAre) {
  StatusBoard board;
  const auto stale = [](RankStatus& s) { s.last_progress_time = 1; };
  for (const auto& [phase, moves] :
       std::map<std::string, bool>{{"loading", true}, {"saving", true}, {"training", false}}) {
    board.Progress(phase);
    board.Update(stale);
    board.Alive();
    EXPECT_EQ(board.Get().last_progress_time > 1, moves) << phase;
  }
}

TEST(StatusBoard, SaysHowLongTheStartTook) {
  StatusBoard board;
  EXPECT_TRUE(board.Get().ToStatusJson().at("startup").at("first_step_seconds").is_null());
  board.Joined("u", 1);
  const double joined = *board.Get().startup.rendezvous_seconds;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  board.Stepped();
  const double first = *board.Get().startup.first_step_seconds;
  EXPECT_GE(joined, 0);
  EXPECT_GE(first, 0.02);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  board.Stepped();
  EXPECT_EQ(board.Get().startup.first_step_seconds, first) << "the second step is not the first";
  EXPECT_GT(*board.Get().last_step_time, 0);
}

// Zero is a value; a rank that has not trained yet has none.
TEST(RankStatus, UnknownIsNotZero) {
  const RankStatus unknown = Example(0);
  for (const char* key : {"loss", "samples_per_second", "eta_seconds", "last_step_time"})
    EXPECT_TRUE(unknown.ToStatusJson().at(key).is_null()) << key;
  for (const char* metric :
       {"trainyard_loss{", "trainyard_last_step_timestamp_seconds{", "trainyard_checkpoint_last_step{"})
    EXPECT_EQ(Exposition({unknown}).find(metric), std::string::npos) << metric;
  RankStatus zero = Example(0);
  zero.loss = zero.eta_seconds = 0;
  EXPECT_EQ(RankStatus::FromJson(zero.ToJson()).ToStatusJson().at("eta_seconds"), 0);
  EXPECT_NE(Exposition({zero}).find("trainyard_loss{rank=\"0\"} 0"), std::string::npos);
}

TEST(Exposition, SpeedAndDataTimesWhereTheyAreKnown) {
  const RankStatus unknown = Example(0);
  for (const char* metric : {"trainyard_tokens_per_second{", "trainyard_mfu{", "trainyard_data_read_seconds_total{",
                             "trainyard_data_collate_seconds_total{", "trainyard_data_wait_seconds_total{"})
    EXPECT_EQ(Exposition({unknown}).find(metric), std::string::npos) << metric;
  RankStatus s = Example(0);
  s.tokens_per_second = 1500;
  s.mfu = 0.5;
  s.data_seconds = {{"read", 4}, {"decode", 3}, {"transform", 1}, {"collate", 0}, {"wait", 2.5}};
  s.cache_reads = {{"hit", 6}, {"miss", 2}};
  const std::string text = Exposition({RankStatus::FromJson(s.ToJson())});
  for (const char* line :
       {"trainyard_tokens_per_second{rank=\"0\"} 1500", "trainyard_mfu{convention=\"palm\",rank=\"0\"} 0.5",
        "trainyard_data_read_seconds_total{rank=\"0\"} 4", "trainyard_data_collate_seconds_total{rank=\"0\"} 0",
        "trainyard_data_decode_seconds_total{rank=\"0\"} 3", "trainyard_data_transform_seconds_total{rank=\"0\"} 1",
        "trainyard_cache_reads_total{result=\"hit\",rank=\"0\"} 6",
        "trainyard_cache_reads_total{result=\"miss\",rank=\"0\"} 2",
        "trainyard_data_wait_seconds_total{rank=\"0\"} 2.5"})
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
}

// Until the ranks have met nobody knows the attempt, and until it has chosen where to start nobody knows the step.
TEST(RankStatus, AStartKnowsNothingYet) {
  RankStatus starting;
  starting.last_progress_time = 1e9;
  for (const char* key : {"job_uid", "attempt", "step", "total_steps"})
    EXPECT_TRUE(starting.ToStatusJson().at(key).is_null()) << key;
  const std::string text = Exposition({RankStatus::FromJson(starting.ToJson())});
  for (const char* metric :
       {"trainyard_step{", "trainyard_restarts_total{", "trainyard_micro_batch{", "trainyard_data_wait_ratio{"})
    EXPECT_EQ(text.find(metric), std::string::npos) << metric;
}

// An evaluation moves the one and not the other.
TEST(Exposition, ProgressIsKnownBeforeAStep) {
  RankStatus s = Example(0);
  std::string text = Exposition({RankStatus::FromJson(s.ToJson())});
  EXPECT_NE(text.find("trainyard_last_progress_timestamp_seconds{rank=\"0\"} 1000000000"), std::string::npos) << text;
  EXPECT_NE(text.find("trainyard_total_steps{rank=\"0\"} 20"), std::string::npos) << text;
  for (const char* metric : {"trainyard_last_step_timestamp_seconds{", "trainyard_eta_seconds{"})
    EXPECT_EQ(text.find(metric), std::string::npos) << metric;
  s.eta_seconds = 64;
  s.total_steps = 0;  // not chosen yet where to start
  text = Exposition({RankStatus::FromJson(s.ToJson())});
  EXPECT_NE(text.find("trainyard_eta_seconds{rank=\"0\"} 64"), std::string::npos) << text;
  EXPECT_EQ(text.find("trainyard_total_steps{"), std::string::npos) << text;
}

TEST(Exposition, MemoryIsTheRanksOwn) {
  RankStatus zero = Example(0), one = Example(1), two = Example(2);
  zero.host_memory_bytes = 1e6;
  one.host_memory_bytes = 2e6;
  const std::string text = Exposition({RankStatus::FromJson(zero.ToJson()), RankStatus::FromJson(one.ToJson()), two});
  EXPECT_NE(text.find("trainyard_host_memory_bytes{rank=\"0\"} 1000000"), std::string::npos) << text;
  EXPECT_NE(text.find("trainyard_host_memory_bytes{rank=\"1\"} 2000000"), std::string::npos) << text;
  EXPECT_EQ(text.find("trainyard_host_memory_bytes{rank=\"2\"}"), std::string::npos) << "unknown, and not the server's";
}

TEST(Exposition, DropsBySink) {
  RankStatus s = Example(0);
  s.telemetry_dropped = {{"jsonl", 3}, {"tensorboard", 0}};
  const std::string text = Exposition({RankStatus::FromJson(s.ToJson())});
  EXPECT_NE(text.find("trainyard_telemetry_dropped_total{sink=\"jsonl\",rank=\"0\"} 3"), std::string::npos) << text;
  EXPECT_NE(text.find("trainyard_telemetry_dropped_total{sink=\"tensorboard\",rank=\"0\"} 0"), std::string::npos);
}

TEST(Exposition, OneFamilyForAllRanks) {
  const std::string text = Exposition({Example(0), Example(1)});
  EXPECT_NE(text.find("trainyard_step{rank=\"0\"} 12"), std::string::npos) << text;
  EXPECT_NE(text.find("trainyard_step{rank=\"1\"} 12"), std::string::npos);
  EXPECT_NE(text.find("trainyard_phase_seconds_total{phase=\"forward\",rank=\"1\"} 3"), std::string::npos);
  EXPECT_NE(text.find("trainyard_data_wait_ratio{rank=\"0\"} 0.25"), std::string::npos);
  EXPECT_EQ(text.find("# TYPE trainyard_step gauge"), text.rfind("# TYPE trainyard_step gauge"));
}

TEST(StatusServer, BeforeTheFirstReport) {
  StatusBoard board;
  const StatusServer server(StatusServer::ListenOn("127.0.0.1", 0),
                            [&] { return std::vector<RankStatus>{board.Get()}; });
  httplib::Client client("127.0.0.1", server.port());
  EXPECT_EQ(client.Get("/status")->status, 503);
  EXPECT_EQ(client.Get("/metrics")->body.find("{rank"), std::string::npos);
  board.Progress("rendezvous");
  EXPECT_EQ(client.Get("/status")->status, 200);
}

TEST(StatusServer, ServesWhatItIsToldNow) {
  StatusBoard board;
  board.Update([](RankStatus& s) { s = Example(0); });
  const StatusServer server(StatusServer::ListenOn("127.0.0.1", 0),
                            [&] { return std::vector<RankStatus>{board.Get()}; });
  httplib::Client client("127.0.0.1", server.port());
  EXPECT_EQ(nlohmann::json::parse(client.Get("/status")->body)["step"], 12);
  board.Update([](RankStatus& s) { s.step = 13; });
  EXPECT_EQ(nlohmann::json::parse(client.Get("/status")->body)["step"], 13);
  EXPECT_EQ(client.Get("/healthz")->status, 200);
  EXPECT_EQ(client.Get("/readyz")->status, 200);
  board.Progress("rendezvous");
  EXPECT_EQ(client.Get("/readyz")->status, 503);
  EXPECT_EQ(client.Get("/nothing")->status, 404);
  EXPECT_THROW(StatusServer::ListenOn("127.0.0.1", server.port()), PeerError);
}

// A client of the test's own: connects, and sends what it is told.
struct RawClient {
  RawClient(int port, const std::string& text) : fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    where.sin_port = htons(static_cast<uint16_t>(port));
    connected = connect(fd, reinterpret_cast<sockaddr*>(&where), sizeof where) == 0;
    Send(text);
  }
  ~RawClient() { close(fd); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;
  void Send(const std::string& text) { send(fd, text.data(), text.size(), MSG_NOSIGNAL); }
  // Everything up to the end of the connection.
  std::string Receive() {
    std::string all;
    char buffer[4096];
    for (ssize_t n; (n = recv(fd, buffer, sizeof buffer, 0)) > 0;) all.append(buffer, static_cast<size_t>(n));
    return all;
  }
  int fd;
  bool connected = false;
};

TEST(StatusServer, AnswersBesideHundredsThatDoNotFinish) {
  const StatusServer server(StatusServer::ListenOn("127.0.0.1", 0), [] { return std::vector<RankStatus>{Example(0)}; });
  std::list<RawClient> crowd;
  for (int i = 0; i < 400; ++i) crowd.emplace_back(server.port(), i % 2 ? "GET /status HTTP/1.1\r\nX: " : "");
  ASSERT_TRUE(crowd.back().connected);
  // With a thread for each, or a queue behind them, this takes as long as the crowd is patient.
  httplib::Client client("127.0.0.1", server.port());
  client.set_read_timeout(60);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) {
    for (RawClient& slow : crowd) slow.Send("x");
    const auto answer = client.Get("/status");
    ASSERT_TRUE(answer) << i;
    EXPECT_EQ(answer->status, 200);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20)) << "a second each, at most";
}

TEST(StatusServer, ARequestInPiecesAndOneThatNeverEnds) {
  const StatusServer server(StatusServer::ListenOn("127.0.0.1", 0), [] { return std::vector<RankStatus>{Example(0)}; });
  RawClient pieces(server.port(), "GET /hea");
  pieces.Send("lthz?x=1 HTTP/1.1\r\nHost: a\r\n");
  pieces.Send("\r\n");
  const std::string answer = pieces.Receive();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\nok\n")) << answer;
  RawClient endless(server.port(), "GET /status HTTP/1.1\r\n" + std::string(9000, 'x'));
  EXPECT_TRUE(endless.Receive().starts_with("HTTP/1.1 431 "));
  RawClient silent(server.port(), "");
  EXPECT_EQ(silent.Receive(), "") << "cut after five seconds";
  RawClient post(server.port(), "POST /status HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(post.Receive().starts_with("HTTP/1.1 405 "));
}

// Five seconds are for the whole exchange, however busy the client looks. A minute is less than its bytes take to be
// too many.
TEST(StatusServer, AClientThatAlwaysHasAByteMoreIsCut) {
  const StatusServer server(StatusServer::ListenOn("127.0.0.1", 0), [] { return std::vector<RankStatus>{Example(0)}; });
  RawClient client(server.port(), "GET /status HTTP/1.1\r\nX: ");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  bool cut = false;
  while (!cut && std::chrono::steady_clock::now() < end) {
    cut = send(client.fd, "x", 1, MSG_NOSIGNAL) < 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(cut);
}

// Whom it held up would be answered too, but only when the deaf one is cut: then its answer is not whole.
TEST(StatusServer, AClientThatDoesNotReadHoldsNobodyUp) {
  RankStatus large = Example(0);
  large.warnings = {std::string(6 << 20, 'w')};  // more than sockets buffer
  const StatusServer server(StatusServer::ListenOn("127.0.0.1", 0), [&] { return std::vector<RankStatus>{large}; });
  RawClient deaf(server.port(), "GET /status HTTP/1.1\r\n\r\n");
  httplib::Client client("127.0.0.1", server.port());
  client.set_read_timeout(60);
  const auto answer = client.Get("/healthz");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200);
  EXPECT_GT(deaf.Receive().size(), large.warnings[0].size());
}

}  // namespace
}  // namespace trainyard
