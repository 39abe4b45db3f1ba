// What a status says of an attempt is written by whoever may write a status: no number in it is believed unseen.
#include "operator/reconcile/observe.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "operator/reconcile/record_bytes.h"
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

// Anything else could be a megabyte in each of a tenant's jobs, kept for as long as they are there.
TEST(JobFromApi, OfItsLabelsTheQueueAloneIsKept) {
  Json labels = {{"kueue.x-k8s.io/queue-name", "team-a"}};
  for (int i = 0; i < 1000; ++i) labels["label-" + std::to_string(i)] = std::string(60, 'x');
  const Json object = {{"metadata", {{"name", "job"}, {"namespace", "default"}, {"labels", labels}}}};
  EXPECT_EQ(JobFromApi(object).job.labels, Json({{"kueue.x-k8s.io/queue-name", "team-a"}}));
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

// A few jobs of a megabyte each are no more to keep than their errors.
TEST(JobFromApi, WhatIsTooLargeIsNotKept) {
  for (const bool wrong : {false, true}) {
    Json object = JobObject("job", 2);
    if (wrong) object["spec"]["restart"] = 1;  // no later check is made
    object["spec"]["config"]["values"] = std::vector<int>(500'000, 1);
    object["spec"]["template"]["spec"]["containers"][0]["args"] = std::vector<int>(500'000, 1);
    object["spec"]["checkpoint"]["volume"]["values"] = std::vector<int>(500'000, 1);
    const JobRecord record = JobFromApi(object);
    EXPECT_TRUE(record.config.empty());
    EXPECT_TRUE(record.pod_template.empty());
    EXPECT_TRUE(record.volume.empty());
    EXPECT_EQ(record.errors.size(), wrong ? 4u : 3u);
    EXPECT_LT(BytesOf(record), 10'000);
  }
}

// 256 KiB of numbers or empty objects are a template that the API takes. As trees of values, and as one mistake each, a
// few of them would end the operator for everyone, again after each restart.
TEST(JobFromApi, OneTenantsTemplateTakesNoMoreThanItsText) {
  for (const Json& each : {Json(1), Json::object()})
    for (const size_t count : {size_t{9'000}, size_t{80'000}}) {
      Json object = JobObject("job", 2);
      Json& containers = object["spec"]["template"]["spec"]["containers"] = Json::array();
      while (containers.size() < count) containers.push_back(each);
      const JobRecord record = JobFromApi(object);
      EXPECT_LE(record.errors.size(), api::kMostFieldErrors + 1) << "nobody reads more";
      EXPECT_EQ(record.errors.size() > api::kMostFieldErrors, count < 10'000) << "one that is too large is one mistake";
      EXPECT_LT(BytesOf(record), 50'000);
      EXPECT_TRUE(record.job.spec.pod_template.is_null());
    }
  Json object = JobObject("job", 2);
  object["spec"]["config"] = {{"a", 1}};
  const TrainingJob whole = SortPods(JobFromApi(object), {}).job;
  EXPECT_EQ(whole.spec.pod_template, object["spec"]["template"]);
  EXPECT_EQ(whole.spec.config, object["spec"]["config"]);
}

// Hundreds of jobs with specs as long as the API takes them.
// A copy that someone has made of a worker's pod, with its labels and its owner.
TEST(SortPods, OfTwoPodsOfOneRankTheOneWithTheNameIsTheWorker) {
  for (const bool first : {false, true}) {
    Scene scene(1);
    if (first) scene.Pod(0).name = "job-1-0x";
    scene.Pod(0);
    if (!first) scene.Pod(0).name = "job-1-0x";
    const Observed observed = scene.Observe();
    ASSERT_TRUE(observed.current[0]);
    EXPECT_EQ(observed.current[0]->name, "job-1-0");
    ASSERT_EQ(observed.stale.size(), 1u);
    EXPECT_EQ(observed.stale[0]->name, "job-1-0x");
  }
}

TEST(JobFromApi, OfALongSpecNoMoreIsKeptThanThatItIsLong) {
  for (const size_t length : {size_t{10'000}, size_t{60'000}}) {
    Json object = JobObject("job", 2);
    object["spec"]["config"]["note"] = std::string(length, 'x');
    object["spec"]["checkpoint"]["volume"] = {{"persistentVolumeClaim", {{"claimName", "c"}}}};
    const JobRecord record = JobFromApi(object), whole = WholeFromApi(object);
    EXPECT_EQ(record.apart, length > 20'000);
    EXPECT_TRUE(record.errors.empty());
    EXPECT_LT(BytesOf(record), 20'000);
    EXPECT_EQ(SortPods(record, {}).job.spec.checkpoint.volume, object["spec"]["checkpoint"]["volume"]);
    EXPECT_EQ(SortPods(whole, {}).job.spec.config, object["spec"]["config"]);
    EXPECT_FALSE(whole.apart);
  }
}

TEST(JobFromApi, OfAJobThatHasEndedNoTemplateIsKept) {
  for (const char* type : {"Complete", "Failed"}) {
    Json object = JobObject("job", 2);
    object["spec"]["config"]["a"] = 1;
    object["spec"]["restart"] = 1;  // what only a newer operator calls wrong
    object["status"] = {{"attempt", 1}, {"phase", type}, {"conditions", {{{"type", type}, {"status", "True"}}}}};
    const JobRecord record = JobFromApi(object);
    EXPECT_TRUE(record.config.empty());
    EXPECT_TRUE(record.pod_template.empty());
    const Plan plan = MakePlan(SortPods(record, {}), kNow);
    EXPECT_EQ(plan.status.phase, type);
    EXPECT_EQ(plan.status.conditions.size(), 1u) << "nobody calls it invalid";
    object["status"]["conditions"][0]["status"] = "False";
    EXPECT_FALSE(JobFromApi(object).pod_template.empty());
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

// Whoever may create jobs may create hundreds of them, with whatever the schema lets through: it counts characters,
// and no unknown field of a template.
TEST(JobRecord, OfOneThatIsWrongLittleIsKept) {
  const auto record = [](const std::function<void(Json&)>& edit) {
    Json object = {{"metadata", {{"name", "job"}, {"namespace", "default"}, {"uid", "u"}}},
                   {"spec",
                    {{"workers", 1},
                     {"template", {{"spec", {{"containers", {{{"name", "trainer"}, {"image", "x"}}}}}}}},
                     {"restart", {{"rules", Json::array()}}}}}};
    edit(object["spec"]);
    return JobFromApi(object);
  };
  const int64_t usual = BytesOf(record([](Json&) {}));
  std::string wide;  // 128 characters of four bytes
  for (int i = 0; i < 128; ++i) wide += "\xf0\x9f\x98\x80";
  const auto rules = [](const std::string& reason, int reasons) {
    return [=](Json& spec) {
      for (int i = 0; i < 32; ++i)
        spec["restart"]["rules"].push_back(
            {{"onReasons", Json(std::vector<std::string>(reasons, reason))}, {"action", "Fail"}});
    };
  };
  for (const auto& edit : {rules(wide, 32), rules(std::string(128, 'r'), 32), rules("r", 32), rules("r", 300)}) {
    const JobRecord refused = record(edit);
    EXPECT_FALSE(refused.errors.empty());
    EXPECT_LT(BytesOf(refused), usual + 32 * 1024);
    for (const api::FieldError& error : refused.errors) EXPECT_EQ(error.field.find("spec.restart.rules"), 0u);
  }
  EXPECT_TRUE(record(rules("OOMKilled", 4)).errors.empty());
  const JobRecord unknown = record([](Json& spec) { spec["template"][std::string(250'000, 'x')] = 1; });
  ASSERT_EQ(unknown.errors.size(), 1u);
  EXPECT_LT(BytesOf(unknown), usual + 4096);
  EXPECT_TRUE(unknown.apart);
}

// Its template was dropped for its size: each look at it takes as much as at one that is only long.
TEST(JobRecord, WhatIsTooLargeToBeTakenIsApart) {
  for (const char* part : {"template", "config"}) {
    Json object = {{"metadata", {{"name", "job"}}},
                   {"spec", {{"workers", 1}, {"template", {{"spec", Json::object()}}}}}};
    object["spec"][part]["z"] = Json(20'000, Json::object());
    const JobRecord record = JobFromApi(object);
    EXPECT_FALSE(record.errors.empty());
    EXPECT_TRUE(record.apart) << part;
  }
}

}  // namespace
}  // namespace trainyard::reconcile
