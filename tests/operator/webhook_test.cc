// What a namespace's webhook takes of the operator that fails, hangs or refuses: no more than its share.
#include <gtest/gtest.h>

#include "operator/base/json_access.h"
#include "operator/reconcile/conditions.h"
#include "tests/operator/trouble_fixture.h"

namespace trainyard::reconcile {
namespace {

class WebhookTest : public TroubleTest {};

// A namespace's webhook that hangs holds a worker of the operator each time: a restart asks no dry run first.
TEST_F(WebhookTest, AWebhookThatFailsForPodsIsAskedLessAndLess) {
  Start(1);
  Live(5);
  Refuse("create pods", kBroken);
  EndPod("job-1-0", 70);
  Live(600);
  EXPECT_GE(client_.made["create pods job-2-0"], 3);
  EXPECT_LE(client_.made["create pods job-2-0"], 8) << "after 10 s, 20, 40, ...";
  EXPECT_EQ(Condition("WorkersReady")["reason"], "RequestFailed");
  EXPECT_NE(Condition("WorkersReady")["message"].get<std::string>().find("failed calling webhook"), std::string::npos);
  Allow();
  Live(310);
  EXPECT_EQ(StatusOfJob()["workers"]["created"], 1);
  // Nobody is to blame for a server that is away: it is asked as soon as the queue says.
  Refuse("create pods", Status(Code::kUnavailable, "connection refused"));
  EndPod("job-2-0", 70);
  Live(60);
  EXPECT_GE(client_.made["create pods job-3-0"], 8);
}

// Sixteen such jobs would keep all of the operator's workers, and their pods its connections.
TEST_F(WebhookTest, SlowPodsAreMadeAFewAtATimeAndNoWorkerIsKeptForThem) {
  client_.answer = [&](const std::string& request) {
    if (request.starts_with("create pods")) clock_.Advance(10);
    return Status::Ok();
  };
  Start(40);
  Pump(kJobs);
  Pump(kPods);
  for (size_t made = 0, looks = 0; made < 40; made = Pods(), ++looks) {
    const size_t before = Pods();
    (void)Look();
    EXPECT_LE(Pods() - before, 6u) << "then others have their turn";
    ASSERT_LT(looks, 50u) << "each look gets on";
    Pump(kJobs);
    Pump(kPods);
  }
}

// And so with deletions: a webhook that holds each for its ten seconds would keep workers and connections from all.
TEST_F(WebhookTest, SlowPodsAreDeletedAFewAtATimeAndNoWorkerIsKeptForThem) {
  Start(40);
  Live(5);
  ASSERT_EQ(Pods(), 40u);
  client_.answer = [&](const std::string& request) {
    if (request.starts_with("delete pods")) clock_.Advance(10);
    return Status::Ok();
  };
  Edit({{"suspend", true}});
  for (size_t left = 40, looks = 0; left > 0; ++looks) {
    Pump(kJobs);
    Pump(kPods);
    (void)Look();
    EXPECT_LE(left - Pods(), 6u) << "then others have their turn";
    left = Pods();
    ASSERT_LT(looks, 50u) << "each look gets on";
  }
}

TEST_F(WebhookTest, AWebhookThatFailsForDeletionsIsAskedLessAndLess) {
  Start(1);
  Live(5);
  Refuse("delete pods", kBroken);
  Edit({{"suspend", true}});
  Live(600);
  EXPECT_GE(client_.made["delete pods job-1-0"], 3);
  EXPECT_LE(client_.made["delete pods job-1-0"], 8) << "after 10 s, 20, 40, ...";
  EXPECT_EQ(Condition("WorkersReady")["reason"], "RequestFailed");
  EXPECT_NE(Condition("WorkersReady")["message"].get<std::string>().find("failed calling webhook"), std::string::npos);
  Allow();
  Live(310);
  EXPECT_EQ(Pods(), 0u);
}

// Of everything in a namespace, for instance: each write would take a worker for as long as it hangs.
TEST_F(WebhookTest, AWebhookThatFailsForStatusesIsAskedLessAndLess) {
  Start(1);
  Live(2);
  client_.made.clear();
  Refuse("patch trainingjobs", kBroken);
  RunPod("job-1-0");
  Live(400);
  EXPECT_LE(client_.made["patch trainingjobs job"], 8) << "after 10, 20, 40, ... s";
  EXPECT_GE(client_.made["patch trainingjobs job"], 4);
  Allow();
  Live(310);
  EXPECT_EQ(StatusOfJob()["phase"], "Running");
}

// A webhook's own 429 is a refusal of its namespace's pods, of which the dry run is one.
TEST_F(WebhookTest, AWebhookThatAsksToComeAgainIsAskedLessAndLess) {
  Refuse("dry-run pods", Status(Code::kThrottled, "admission webhook \"a.example.com\" denied the request: later"));
  Start(1);
  Live(600);
  EXPECT_GE(client_.made["dry-run pods job-1-0"], 3);
  EXPECT_LE(client_.made["dry-run pods job-1-0"], 8) << "after 10 s, 20, 40, ...";
  Allow();
  Live(310);
  EXPECT_EQ(Pods(), 1u);
}

// Nobody's webhook is to blame for a server that is away: the namespace's jobs go on as soon as it is back.
TEST_F(WebhookTest, AServerThatWasAwayKeepsNoNamespaceWaiting) {
  Refuse("dry-run pods", Status(Code::kThrottled, "too many requests"));
  Start(1);
  Live(200);
  EXPECT_EQ(Pods(), 0u);
  Allow();
  Live(15);
  EXPECT_EQ(Pods(), 1u);
}

}  // namespace
}  // namespace trainyard::reconcile
