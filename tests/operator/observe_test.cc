// What a status says of an attempt is written by whoever may write a status: no number in it is believed unseen.
#include "operator/reconcile/observe.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/operator/builders.h"

namespace trainyard::reconcile {
namespace {

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

TEST(SortPods, AnAttemptKeepsItsSize) {
  Scene scene(2);
  scene.spec().workers = 5;
  EXPECT_EQ(scene.Observe().current.size(), 2u);
}

TEST(SortPods, AStatusOfAnySizeIsNoSizeOfOurs) {
  for (const int64_t desired : {int64_t{10001}, int64_t{1} << 40, kHuge, int64_t{-1}}) {
    Scene scene(2);
    scene.status().workers.desired = desired;
    EXPECT_EQ(scene.Observe().current.size(), 2u) << desired;
    scene.spec().workers = desired;
    EXPECT_LE(scene.Observe().current.size(), 10000u) << desired;
  }
}

TEST(JobFromApi, NumbersOfAStatusThatCannotBeAreNotThere) {
  for (const Json& huge : {Json(kHuge), Json(std::numeric_limits<uint64_t>::max()), Json(-1), Json("2"), Json(1e300)}) {
    Json object = JobObject("job", 2);
    object["status"] = {{"attempt", huge}, {"suspendedSeconds", huge}, {"workers", {{"desired", huge}}}};
    const JobRecord record = JobFromApi(object);
    EXPECT_TRUE(record.errors.empty());
    EXPECT_EQ(record.job.status.attempt, 0) << huge;
    EXPECT_EQ(record.job.status.suspended_seconds, 0) << huge;
    EXPECT_EQ(SortPods(record, {}).current.size(), 2u) << huge;
  }
}

// A grace of as many seconds as a number holds.
TEST(PodFromJson, TimesOfOthersOverflowNothing) {
  for (const Json& grace : {Json(kHuge), Json(std::numeric_limits<uint64_t>::max()), Json(1e308), Json(-5)}) {
    const Json pod = {
        {"metadata",
         {{"name", "p"}, {"deletionTimestamp", "9999-12-31T23:59:59Z"}, {"deletionGracePeriodSeconds", grace}}}};
    const PodRecord record = PodFromJson(pod);
    ASSERT_TRUE(record.gone_by) << grace;
    ASSERT_EQ(record.deleted_at.has_value(), !record.forced) << grace << ": of a forced one it is unknown";
    EXPECT_LE(record.deleted_at.value_or(*record.gone_by), *record.gone_by) << grace;
  }
}

}  // namespace
}  // namespace trainyard::reconcile
