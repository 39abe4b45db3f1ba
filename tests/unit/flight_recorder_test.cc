#include "trainer/comm/flight_recorder.h"

#include <gtest/gtest.h>

namespace trainyard {
namespace {

// A rank that has entered the same collectives as all of one script, so many of them, of which so many are over.
Flight Of(uint64_t entered, uint64_t ended, const std::string& phase = "forward",
          const std::string& group = "tensors") {
  FlightRecorder recorder;
  for (uint64_t i = 1; i <= entered; ++i) recorder.Enter(group, "reduce_scatter", "bucket " + std::to_string(i), 4096);
  for (uint64_t i = 1; i <= ended; ++i) recorder.End(group);
  recorder.Phase(phase);
  Flight flight = recorder.Now();
  flight.host = "";
  flight.phase_seconds = 41;
  return flight;
}

TEST(FlightRecorder, TheRankThatNeverCameIsNamed) {
  const std::vector<Flight> flights = {Of(812, 811), Of(811, 811, "data"), Of(812, 811)};
  const HangVerdict verdict = JudgeHang(flights);
  EXPECT_EQ(verdict.culprits, std::vector<int>{1});
  EXPECT_EQ(verdict.sentence,
            "rank 1 never entered reduce_scatter #812 (tensors, bucket 812, 4.0 KiB); last seen in data, for 41s");
}

TEST(FlightRecorder, SeveralAreNamedTogether) {
  std::vector<Flight> flights = {Of(5, 5), Of(6, 5), Of(4, 4)};
  flights[2].host = "w-1";
  const HangVerdict verdict = JudgeHang(flights);
  EXPECT_EQ(verdict.culprits, (std::vector<int>{0, 2}));
  EXPECT_EQ(verdict.sentence, "rank 0, rank 2 (w-1) never entered reduce_scatter #6 (tensors, bucket 6, 4.0 KiB)");
}

// Rank 0 waits in one group for rank 1, and so does not come to the other group's collective, in which rank 2 waits.
TEST(FlightRecorder, WhoWaitsIsNotBlamed) {
  std::vector<Flight> flights = {Of(3, 2), Of(2, 2, "forward"), Of(3, 3)};
  flights[2].groups["control"] = {.entered = 1, .ended = 0, .entries = {{1, "all_reduce", "consensus", 48}}};
  const HangVerdict verdict = JudgeHang(flights);
  EXPECT_EQ(verdict.culprits, std::vector<int>{1});
}

TEST(FlightRecorder, RanksThatMakeDifferentCollectivesAreTold) {
  std::vector<Flight> flights = {Of(3, 2), Of(3, 2)};
  flights[1].groups["tensors"].entries.back().unit = "bucket 9";
  const HangVerdict verdict = JudgeHang(flights);
  EXPECT_TRUE(verdict.culprits.empty());
  EXPECT_EQ(verdict.sentence,
            "the ranks make different collectives: rank 1 entered reduce_scatter #3 (tensors, bucket 9, 4.0 KiB) where "
            "others entered reduce_scatter #3 (tensors, bucket 3, 4.0 KiB)");
}

// Records are kept of the last sixteen collectives.
TEST(FlightRecorder, WhoIsFarAheadHasForgottenWhatItIsInButNoOneMakesAnother) {
  const std::vector<Flight> flights = {Of(40, 2), Of(5, 2), Of(2, 2, "data")};
  EXPECT_EQ(JudgeHang(flights).culprits, std::vector<int>{2});
  EXPECT_EQ(JudgeHang(flights).sentence,
            "rank 2 never entered reduce_scatter #3 (tensors, bucket 3, 4.0 KiB); last seen in data, for 41s");
  EXPECT_EQ(JudgeHang(std::vector<Flight>{Of(40, 2), Of(2, 2, "data")}).sentence,
            "rank 1 never entered collective #3 (tensors); last seen in data, for 41s");
}

TEST(FlightRecorder, NobodyIsBlamedForWhatAllHaveEntered) {
  const std::vector<Flight> flights = {Of(3, 2), Of(4, 2)};
  const HangVerdict verdict = JudgeHang(flights);
  EXPECT_TRUE(verdict.culprits.empty());
  EXPECT_NE(verdict.sentence.find("every rank has entered reduce_scatter #3"), std::string::npos) << verdict.sentence;
  EXPECT_EQ(JudgeHang(std::vector<Flight>{Of(3, 3), Of(3, 3)}).sentence, "");
}

TEST(FlightRecorder, WhatARankTellsIsReadBack) {
  const Flight flight = Of(40, 38, "a \"phase\"\xff");
  const auto read = Flight::FromText(flight.ToText());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->groups.at("tensors").entered, 40U);
  EXPECT_EQ(read->groups.at("tensors").ended, 38U);
  EXPECT_EQ(read->groups.at("tensors").entries.size(), FlightRecorder::kKept);
  EXPECT_EQ(read->groups.at("tensors").entries.back().unit, "bucket 40");
  EXPECT_EQ(read->phase_seconds, 41);
  for (const char* text : {"", "{", "[]", "{\"groups\": 5}", "{\"groups\":{\"a\":{\"entered\":-1}}}"})
    EXPECT_FALSE(Flight::FromText(text)) << text;
}

}  // namespace
}  // namespace trainyard
