// A job of twenty workers in the in-memory API, and an executor for it.
#ifndef TRAINYARD_TESTS_OPERATOR_APPLY_FIXTURE_H_
#define TRAINYARD_TESTS_OPERATOR_APPLY_FIXTURE_H_

#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "operator/local/api/memory_client.h"
#include "operator/reconcile/apply.h"
#include "tests/operator/builders.h"
#include "tests/sim/dice.h"

namespace trainyard::reconcile {

// Refuses to create pods from the n-th on, and remembers how many requests it saw.
class QuotaClient : public local::MemoryClient {
 public:
  using MemoryClient::MemoryClient;
  Result<Json> Create(const kube::Resource& resource, const std::string& ns, const Json& object,
                      const kube::WriteOptions& options) override {
    if (resource == kube::kPods && ++pods > quota) return Status(Code::kForbidden, "exceeded quota: pods");
    return MemoryClient::Create(resource, ns, object, options);
  }
  std::atomic<int> pods{0};
  int quota = 1000;
};

class ApplyTest : public testing::Test {
 protected:
  ApplyTest() {
    api_.Create(kube::kTrainingJobs, "default", JobObject("job", 20), {});
    SetAttempt(1);
  }
  void SetAttempt(int64_t attempt) {
    api_.Patch(kube::kTrainingJobs, "default", "job", "status", local::PatchType::kMerge,
               {{"status", {{"attempt", attempt}, {"observedGeneration", 1}}}}, {});
    job_ = WholeJob(api_.Get(kube::kTrainingJobs, "default", "job").body);
  }
  Plan Creates(int64_t count) const {
    Plan plan;
    plan.status = job_.status;
    for (int64_t rank = 0; rank < count; ++rank) plan.creates.push_back(rank);
    plan.needs_services = true;
    return plan;
  }
  size_t PodCount() const { return api_.List(kube::kPods, "", {}).body["items"].size(); }

  sim::VirtualClock clock_;
  local::MemoryApi api_{clock_, 1};
  QuotaClient client_{api_};
  Executor executor_{client_, clock_, 4};
  TrainingJob job_;
  Outcome outcome_;
};

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_TESTS_OPERATOR_APPLY_FIXTURE_H_
