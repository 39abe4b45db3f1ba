// Every wrong spec is refused: when it is applied, as kubectl does it, or in the job's status after a reconcile.
#include "tests/operator/invalid_specs.h"

#include <gtest/gtest.h>

#include <cctype>
#include <set>

#include "operator/local/api/memory_client.h"
#include "operator/reconcile/conditions.h"
#include "operator/reconcile/reconciler.h"
#include "tests/operator/builders.h"
#include "tests/operator/reconciler_parts.h"
#include "tests/operator/scripted_client.h"

namespace trainyard::reconcile {
namespace {

class InvalidSpecsTest : public testing::Test {
 protected:
  // What the API or, behind it, the operator says of the job; empty when neither objects.
  std::string Answer(const Json& job) {
    clock_.Pass(1e9);
    local::MemoryApi api(clock_, 1);
    local::MemoryClient client(api);
    const Result<Json> made = client.Create(kube::kTrainingJobs, "default", job, {.strict = true});
    if (!made.ok()) return made.status().message();
    Caches caches(client, clock_, "", 1, [](const std::string&, double) {});
    kube::EventRecorder events(client, clock_, "test");
    Reconciler reconciler(client, clock_, caches, reports_, events, log_, {.parallel_requests = 1});
    StopFlag stopped;
    stopped.Set();  // Only what there is: no watch waits.
    for (kube::Reflector* reflector : caches.reflectors()) reflector->Pump(stopped);
    EXPECT_TRUE(caches.synced());
    const kube::ReconcileResult result = reconciler.Reconcile("default/job");
    EXPECT_TRUE(result.status.ok()) << result.status.ToString();
    int pods = 0;
    (void)client.List(kube::kPods, "", {}, [&](const Json&) { ++pods; });
    EXPECT_EQ(pods, 0) << "nothing is created for what is refused";
    const Result<Json> after = client.Get(kube::kTrainingJobs, "default", "job");
    for (const Json& condition : after->value("/status/conditions"_json_pointer, Json::array())) {
      if (condition["type"] == kInvalidSpecCondition && condition["status"] == "True") return condition["message"];
    }
    return "";
  }

  kube::TurnedClock clock_;
  const NoReports reports_;
  const Logger log_{-1, Logger::Form::kText, LogLevel::kError};
};

// The last name of a path: a schema, a rule and a dry run each have a path of their own before it.
std::string Last(const std::string& field) {
  const std::string name = field.substr(field.rfind('.') + 1);
  return name.substr(0, name.find('['));
}

TEST_F(InvalidSpecsTest, AreRefusedWhenAppliedOrInStatus) {
  EXPECT_GE(api::InvalidSpecs().size(), 40u);
  ASSERT_EQ(Answer(JobObject("job", 2)), "");
  for (const api::InvalidSpec& spec : api::InvalidSpecs()) {
    Json job = JobObject("job", 2);
    job.merge_patch(Json::parse(spec.patch));
    const std::string answer = Answer(job);
    EXPECT_NE(answer.find(Last(spec.words[0])), std::string::npos) << spec.patch << ": " << answer;
    // A namespace is the path's: the server says that the object's is another, and shows neither.
    if (spec.words.size() < 2 || spec.words[0] == std::string("metadata.namespace")) continue;
    const std::string value = spec.words[1];
    if (std::isdigit(static_cast<unsigned char>(value[0])) || value[0] == '"') {
      EXPECT_NE(answer.find(value), std::string::npos) << spec.patch << ": " << answer;
    }
  }
}

}  // namespace
}  // namespace trainyard::reconcile
