#include "operator/kube/leader_election.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>

#include "tests/operator/scripted_client.h"

namespace trainyard::kube {
namespace {

// One Lease, with the versions of an API server.
class LeaseClient : public ScriptedClient {
 public:
  using ScriptedClient::ScriptedClient;
  Result<Json> Get(const Resource&, const std::string&, const std::string&, const FieldPaths&) override {
    if (before_look) before_look();
    if (!up) return Status(Code::kUnavailable, "down");
    return lease.is_null() ? Result<Json>(Status(Code::kNotFound, "none")) : lease;
  }
  Result<Json> Create(const Resource&, const std::string&, const Json& object, const WriteOptions&) override {
    if (!up) return Status(Code::kUnavailable, "down");
    if (!lease.is_null()) return Status(Code::kAlreadyExists, "there");
    lease = object;
    return Stamp();
  }
  Result<Json> MergePatch(const Resource&, const std::string&, const std::string&, const std::string&,
                          const Json& patch, const WriteOptions&) override {
    if (!up) return Status(Code::kUnavailable, "down");
    if (lease.is_null()) return Status(Code::kNotFound, "none");
    if (patch["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"])
      return Status(Code::kConflict, "changed");
    lease.merge_patch(patch);
    const Json stamped = Stamp();
    return answers ? Result<Json>(stamped) : Status(Code::kUnavailable, "the answer is lost");
  }
  std::string holder() const { return lease["spec"]["holderIdentity"]; }

  Json lease;
  bool up = true, answers = true;
  std::function<void()> before_look;  // what passes until the server has the question, as a credentials' plugin takes

 private:
  Json Stamp() {
    lease["metadata"]["resourceVersion"] = std::to_string(++version_);
    return lease;
  }
  int version_ = 0;
};

class ElectionTest : public testing::Test {
 protected:
  LeaderElection::Options As(const std::string& identity) const {
    return {.ns = "ns", .name = "operator", .identity = identity};
  }
  TurnedClock clock_;
  Logger log_{STDERR_FILENO, Logger::Form::kText, LogLevel::kError};
  LeaseClient client_{clock_};
  LeaderElection a_{client_, clock_, log_, As("a")}, b_{client_, clock_, log_, As("b")};
};

TEST_F(ElectionTest, OneLeadsAndTheOtherWaits) {
  for (int i = 0; i < 30; ++i) {
    const double wait = a_.Step();
    b_.Step();
    clock_.Pass(wait);
    EXPECT_TRUE(a_.Leads());
    EXPECT_FALSE(b_.Leads());
  }
  EXPECT_EQ(client_.lease["spec"]["leaseTransitions"], 0);
}

// Nothing is heard of the leader any more: fifteen seconds, seen from here.
TEST_F(ElectionTest, AnotherTakesOverWhenTheLeaseDoesNotChange) {
  a_.Step();
  b_.Step();
  const Instant start = clock_.Steady();
  while (!b_.Leads()) {
    clock_.Pass(b_.Step());
    ASSERT_LT(SecondsBetween(start, clock_.Steady()), 30);
    EXPECT_FALSE(a_.Leads() && b_.Leads());
  }
  EXPECT_GE(SecondsBetween(start, clock_.Steady()), 15);
  EXPECT_LT(SecondsBetween(start, clock_.Steady()), 20);
  EXPECT_TRUE(a_.Lost()) << "long before";
  EXPECT_EQ(client_.lease["spec"]["leaseTransitions"], 1);
}

// A record of another time, or of a clock that is wrong, says nothing.
TEST_F(ElectionTest, TheRecordsTimeIsNotBelieved) {
  a_.Step();
  client_.lease["spec"]["renewTime"] = "1999-01-01T00:00:00.000000Z";
  b_.Step();
  EXPECT_FALSE(b_.Leads()) << "it was seen now for the first time";
  client_.lease["spec"]["renewTime"] = "2999-01-01T00:00:00.000000Z";
  for (int i = 0; i < 10; ++i) clock_.Pass(b_.Step());
  EXPECT_TRUE(b_.Leads());
}

TEST_F(ElectionTest, WhoCannotRenewStopsBeforeAnotherBegins) {
  a_.Step();
  client_.up = false;
  const Instant start = clock_.Steady();
  while (a_.Leads()) clock_.Pass(a_.Step());
  EXPECT_LT(SecondsBetween(start, clock_.Steady()), 13);
  EXPECT_TRUE(a_.Lost());
  client_.up = true;
  a_.Step();
  EXPECT_FALSE(a_.Leads()) << "never again";
}

// What it sees is as new as the answer, not as the question: else it would run out before its time.
TEST_F(ElectionTest, WhatIsSeenLateIsDatedLate) {
  a_.Step();
  client_.before_look = [&] {
    for (int i = 0; i < 15; ++i) {
      clock_.Pass(2);
      a_.Step();
    }
  };
  b_.Step();
  client_.before_look = {};
  ASSERT_TRUE(a_.Leads());
  const Instant renewed = clock_.Steady();
  while (!b_.Leads()) {
    clock_.Pass(b_.Step());
    EXPECT_FALSE(a_.Leads() && b_.Leads());
  }
  EXPECT_GE(SecondsBetween(renewed, clock_.Steady()), 15);
}

TEST_F(ElectionTest, WhatTheLookTookIsNotOfTheLeasesTime) {
  client_.before_look = [&] { clock_.Pass(20); };
  a_.Step();
  EXPECT_TRUE(a_.Leads());
}

TEST_F(ElectionTest, AFrozenLeaderKnowsWhenItWakes) {
  a_.Step();
  EXPECT_TRUE(a_.Leads());
  clock_.Pass(3600);
  EXPECT_FALSE(a_.Leads()) << "before any step";
  EXPECT_TRUE(a_.Lost());
}

TEST_F(ElectionTest, ATakenLeaseIsLostAtOnce) {
  a_.Step();
  client_.lease["spec"]["holderIdentity"] = "c";
  client_.lease["metadata"]["resourceVersion"] = "77";
  clock_.Pass(2);
  a_.Step();
  EXPECT_FALSE(a_.Leads());
  EXPECT_TRUE(a_.Lost());
  EXPECT_EQ(client_.holder(), "c");
}

// A candidate would make it anew within moments, and two would lead.
TEST_F(ElectionTest, ADeletedLeaseIsMadeAnewByWhoIsFirst) {
  clock_.Pass(a_.Step());
  client_.lease = nullptr;
  clock_.Pass(a_.Step());
  EXPECT_TRUE(a_.Leads());
  EXPECT_EQ(client_.holder(), "a") << "by the one that leads, at its next step";
  client_.lease = nullptr;
  b_.Step();
  EXPECT_EQ(client_.holder(), "b");
  a_.Step();
  EXPECT_FALSE(a_.Leads());
  EXPECT_TRUE(a_.Lost());
}

// Or two would lead until the first one's next step.
TEST_F(ElectionTest, ADeletedLeaseIsItsHoldersForAsLongAsItRan) {
  clock_.Pass(a_.Step());
  b_.Step();  // has seen whose it is
  client_.lease = nullptr;
  clock_.Pass(b_.Step());
  EXPECT_FALSE(b_.Leads());
  EXPECT_TRUE(a_.Leads());
  clock_.Pass(a_.Step());
  EXPECT_EQ(client_.holder(), "a");
  b_.Step();
  client_.lease = nullptr;
  const Instant start = clock_.Steady();
  while (!b_.Leads()) clock_.Pass(b_.Step());  // a has stopped
  EXPECT_FALSE(a_.Leads());
  EXPECT_LT(SecondsBetween(start, clock_.Steady()), 20);
}

TEST_F(ElectionTest, ALostAnswerIsNoLostLease) {
  a_.Step();
  client_.answers = false;
  clock_.Pass(a_.Step());
  client_.answers = true;
  clock_.Pass(a_.Step());
  EXPECT_TRUE(a_.Leads());
  EXPECT_EQ(client_.holder(), "a");
}

TEST_F(ElectionTest, AReleasedLeaseIsTakenAtOnce) {
  a_.Step();
  b_.Step();
  a_.Release(client_);
  EXPECT_FALSE(a_.Leads());
  clock_.Pass(2);
  b_.Step();
  EXPECT_TRUE(b_.Leads());
}

// A stop cuts a renewal off, which was done all the same.
TEST_F(ElectionTest, ALeaseIsReleasedThoughARenewalsAnswerWasLost) {
  clock_.Pass(a_.Step());
  client_.answers = false;
  a_.Step();
  client_.answers = true;
  ASSERT_TRUE(a_.Leads());
  a_.Release(client_);
  EXPECT_EQ(client_.holder(), "");
}

// Who does not lead any more must not take the lease from the one who does.
TEST_F(ElectionTest, OnlyTheLeaderReleases) {
  a_.Step();
  b_.Step();
  b_.Release(client_);
  EXPECT_EQ(client_.holder(), "a");
}

TEST_F(ElectionTest, AFieldOfOthersSurvives) {
  a_.Step();
  client_.lease["spec"]["strategy"] = "OldestEmulationVersion";
  clock_.Pass(2);
  a_.Step();
  EXPECT_EQ(client_.lease["spec"]["strategy"], "OldestEmulationVersion");
}

}  // namespace
}  // namespace trainyard::kube
