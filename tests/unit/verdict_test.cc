#include "trainer/launch/verdict.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace trainyard {
namespace {

RankEnd Exited(int rank, int code, double time) { return {.rank = rank, .exit_code = code, .time = time}; }
RankEnd Killed(int rank, int signal, bool by_us, double time) {
  return {.rank = rank, .exit_code = 128 + signal, .signal = signal, .signalled_by_us = by_us, .time = time};
}

TEST(Culprit, FollowsTheContractsOrder) {
  // Each explains more than the ones after it, whatever came first.
  const std::vector<RankEnd> order = {Exited(0, 65, 9), Exited(1, 73, 8),       Exited(2, 71, 7),
                                      Exited(3, 70, 6), Killed(4, 9, false, 5), Exited(5, 75, 4),
                                      Exited(6, 69, 3), Killed(7, 9, true, 2),  Exited(8, 0, 1)};
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    EXPECT_EQ(Culprit({order[i + 1], order[i]}), 1u) << i;
    EXPECT_EQ(Culprit({order[i], order[i + 1]}), 0u) << i;
  }
}

TEST(Culprit, TheEarliestOfEquals) { EXPECT_EQ(Culprit({Exited(0, 69, 5), Exited(1, 69, 3), Exited(2, 69, 4)}), 1u); }
TEST(Culprit, UnlistedCodesCountAsInternalErrors) {
  EXPECT_EQ(CausePriority(Exited(0, 1, 0)), CausePriority(Exited(0, 70, 0)));
}

// Whether memory was refused to a rank or it was killed for want of it.
TEST(Culprit, WhoWasKilledForWantOfMemoryIsAsWhoRanOutOfIt) {
  RankEnd killed = Killed(0, 9, false, 0);
  killed.out_of_memory = true;
  EXPECT_EQ(CausePriority(killed), CausePriority(Exited(0, 71, 0)));
  EXPECT_EQ(ReasonOf(killed), "OOMKilled");
  EXPECT_EQ(nlohmann::json::parse(TerminationMessage(killed, 1, {})).at("reason"), "OOMKilled");
}

TEST(TerminationMessage, HoldsTheContractsFields) {
  RankEnd end = Exited(3, 65, 0);
  end.step = 12;
  end.checkpoint_step = 10;
  end.message = "bad data";
  end.tail = {"one", "two"};
  const auto json = nlohmann::json::parse(
      TerminationMessage(end, 4, {.step = 8, .rendezvous_seconds = 1.5, .first_step_seconds = {}}));
  EXPECT_EQ(
      json,
      nlohmann::json::parse(
          R"({"v":1,"attempt":4,"rank":3,"exit_code":65,"signal":0,"reason":"BadData","step":12,"checkpoint_step":10,"startup":{"step":8,"rendezvous_seconds":1.5,"first_step_seconds":null},"message":"bad data","tail":["one","two"]})"));
}

TEST(TerminationMessage, AStepThatNobodyKnowsIsNull) {
  const auto json = nlohmann::json::parse(TerminationMessage(Exited(0, 74, 0), 1, {}));
  EXPECT_TRUE(json.at("step").is_null());
}

TEST(TerminationMessage, NeverExceedsTheKubeletsLimit) {
  RankEnd end = Exited(0, 70, 0);
  end.message = std::string(5000, 'm');
  for (int i = 0; i < 100; ++i) end.tail.push_back(std::string(90, 't') + "\x01\xff\"");
  const std::string text = TerminationMessage(end, 1, {});
  EXPECT_LE(text.size(), 4096u);
  EXPECT_TRUE(nlohmann::json::parse(text)["tail"].empty()) << "the tail goes first";
  end.message = "short";
  const auto json = nlohmann::json::parse(TerminationMessage(end, 1, {}));
  EXPECT_EQ(json["message"], "short");
  EXPECT_GT(json["tail"].size(), 10u) << "as much of the tail stays as fits";
}

}  // namespace
}  // namespace trainyard
