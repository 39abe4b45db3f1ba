#include "operator/reconcile/job_metrics.h"

#include <gtest/gtest.h>

#include "operator/reconcile/conditions.h"

namespace trainyard::reconcile {
namespace {

api::JobStatus Restarted(int64_t total, int64_t charged, const std::string& reason) {
  api::JobStatus status;
  status.restarts.total = total;
  status.restarts.charged = charged;
  status.last_failure = api::Failure{.reason = reason};
  return status;
}

TEST(JobMetrics, ARestartCountsOnceByItsReason) {
  JobMetrics metrics;
  metrics.Count({}, Restarted(1, 1, "OOMKilled"));
  metrics.Count(Restarted(1, 1, "OOMKilled"), Restarted(1, 1, "OOMKilled"));
  metrics.Count(Restarted(1, 1, "OOMKilled"), Restarted(2, 1, "DisruptionTarget"));
  metrics.Count(Restarted(2, 1, "DisruptionTarget"), Restarted(3, 2, "OOMKilled"));
  EXPECT_EQ(metrics.restarts(), (std::map<std::pair<std::string, bool>, int64_t>{{{"OOMKilled", true}, 2},
                                                                                 {{"DisruptionTarget", false}, 1}}));
}

api::JobStatus Failed(const std::string& reason, int64_t blamed_attempt) {
  api::JobStatus status;
  status.attempt = 2;
  status.phase = api::kFailed;
  status.last_failure = api::Failure{.attempt = blamed_attempt, .reason = reason};
  SetCondition(status, kFailedCondition, true, "DeadlineExceeded", "", Time(), 1);
  return status;
}

TEST(JobMetrics, AFailureCountsOnceByItsReason) {
  JobMetrics metrics;
  const api::JobStatus nonfinite = Failed("NonFinite", 2);
  metrics.Count({}, nonfinite);
  metrics.Count(nonfinite, nonfinite);
  metrics.Count({}, Failed("OOMKilled", 1));
  EXPECT_EQ(metrics.failures(), (std::map<std::string, int64_t>{{"NonFinite", 1}, {"DeadlineExceeded", 1}}))
      << "the culprit of an older attempt did not end the job";
  EXPECT_TRUE(metrics.restarts().empty());
}

TEST(JobMetrics, StrangersWordsAreOneAndHideNobodys) {
  JobMetrics metrics;
  for (int i = 0; i < 1000; ++i) metrics.Count({}, Failed("word" + std::to_string(i), 2));
  for (int i = 0; i < 1000; ++i) metrics.Count({}, Restarted(1, 1, "word" + std::to_string(i)));
  for (const char* known : {"OOMKilled", "ExitCode3", "Signal11", "BadData"}) {
    metrics.Count({}, Failed(known, 2));
    metrics.Count({}, Restarted(1, 1, known));
  }
  EXPECT_EQ(metrics.failures(),
            (std::map<std::string, int64_t>{
                {"Other", 1000}, {"OOMKilled", 1}, {"ExitCode3", 1}, {"Signal11", 1}, {"BadData", 1}}));
  EXPECT_EQ(metrics.restarts().size(), 5u);
  EXPECT_EQ(metrics.restarts().at({"Other", true}), 1000);
}

TEST(JobMetrics, AStageOfAStartCountsOnceInEachAttempt) {
  JobMetrics metrics;
  api::JobStatus pulled;
  pulled.attempt = 1;
  pulled.startup.pulled = 45;
  api::JobStatus trains = pulled;
  trains.startup.first_step = 0.4;
  metrics.Count({}, pulled);
  metrics.Count(pulled, trains);
  const auto stages = metrics.startup();
  ASSERT_EQ(stages.size(), 5);
  EXPECT_STREQ(stages[2].first, "pulled");
  EXPECT_EQ(stages[2].second.count(), 1);
  EXPECT_EQ(stages[2].second.sum, 45);
  EXPECT_EQ(stages[4].second.count(), 1);
  pulled.attempt = 2;
  metrics.Count(trains, pulled);
  EXPECT_EQ(metrics.startup()[2].second.count(), 2);
}

TEST(JobMetrics, TimeCountsByItsCause) {
  JobMetrics metrics;
  api::JobStatus before, after;
  before.goodput.training_seconds = 100;
  after.goodput.training_seconds = 160;
  after.goodput.lost_seconds.replay = 7;
  metrics.Count(before, after);
  const auto goodput = metrics.goodput();
  EXPECT_STREQ(goodput[0].first, "training");
  EXPECT_EQ(goodput[0].second, 60);
  EXPECT_EQ(goodput[3].second, 7);
}

}  // namespace
}  // namespace trainyard::reconcile
