#include "operator/reconcile/job_metrics.h"

#include <gtest/gtest.h>

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

TEST(JobMetrics, StrangersWordsAreBounded) {
  JobMetrics metrics;
  for (int i = 0; i < 1000; ++i) metrics.Count({}, Restarted(1, 1, "word" + std::to_string(i)));
  metrics.Count({}, Restarted(1, 1, "word7"));
  const auto restarts = metrics.restarts();
  EXPECT_LE(restarts.size(), JobMetrics::kMaxReasons + 2) << "Other may stand twice, charged and not";
  EXPECT_EQ(restarts.at({"Other", true}), 1000 - static_cast<int64_t>(JobMetrics::kMaxReasons));
  EXPECT_EQ(restarts.at({"word7", true}), 2);
}

}  // namespace
}  // namespace trainyard::reconcile
