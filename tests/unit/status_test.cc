#include "trainer/metrics/status.h"

#include <gtest/gtest.h>
#include <httplib.h>

#include <cmath>

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
  s.phase_seconds = {{"data", 1}, {"forward", 3}};
  s.warnings = {"w"};
  return s;
}

TEST(RankStatus, JsonComesBack) {
  const RankStatus s = Example(1);
  EXPECT_EQ(RankStatus::FromJson(s.ToJson()).ToJson(), s.ToJson());
  RankStatus nan = Example(0);
  nan.loss = NAN;  // null in JSON
  EXPECT_EQ(RankStatus::FromJson(nlohmann::json::parse(nan.ToJson().dump())).loss, std::nullopt);
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

TEST(StatusServer, ServesWhatItIsToldNow) {
  StatusBoard board;
  board.Update([](RankStatus& s) { s = Example(0); });
  const StatusServer server("127.0.0.1", 0, [&] { return std::vector<RankStatus>{board.Get()}; });
  httplib::Client client("127.0.0.1", server.port());
  EXPECT_EQ(nlohmann::json::parse(client.Get("/status")->body)["step"], 12);
  board.Update([](RankStatus& s) { s.step = 13; });
  EXPECT_EQ(nlohmann::json::parse(client.Get("/status")->body)["step"], 13);
  EXPECT_EQ(client.Get("/healthz")->status, 200);
  EXPECT_EQ(client.Get("/readyz")->status, 200);
  board.Progress("rendezvous");
  EXPECT_EQ(client.Get("/readyz")->status, 503);
  EXPECT_EQ(client.Get("/nothing")->status, 404);
  EXPECT_THROW(StatusServer("127.0.0.1", server.port(), [] { return std::vector<RankStatus>(); }), PeerError);
}

}  // namespace
}  // namespace trainyard
