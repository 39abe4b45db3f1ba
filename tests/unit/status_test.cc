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
  EXPECT_EQ(RankStatus::FromJson(nlohmann::json::parse(nan.ToJson().dump())).loss, 0);
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
