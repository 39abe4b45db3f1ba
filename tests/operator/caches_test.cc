// When a job is looked at after its pods have changed.
#include "operator/reconcile/caches.h"

#include <gtest/gtest.h>

#include "operator/api/labels.h"
#include "tests/operator/scripted_client.h"

namespace trainyard::reconcile {
namespace {

Json PodOf(const std::string& job, int number) {
  Json pod = kube::ObjectAt(job + "-1-" + std::to_string(number), 10 + number);
  pod["metadata"]["labels"] = {{api::kLabelJobName, job}};
  return pod;
}

TEST(Caches, AJobIsLookedAtTheLaterTheMorePodsThereAreToLookAt) {
  kube::TurnedClock clock;
  kube::ScriptedClient server(clock);
  std::map<std::string, double> waits;
  Caches caches(server, clock, "", 1, [&](const std::string& key, double seconds) { waits[key] = seconds; });
  kube::ScriptedClient::Watched watched;
  for (int i = 0; i < 1000; ++i) watched.events.push_back({"ADDED", PodOf("large", i)});
  watched.events.push_back({"ADDED", PodOf("small", 0)});
  server.watches = {watched};
  const StopFlag stop;
  kube::Reflector& pods = *caches.reflectors()[1];
  while (waits.empty() && !server.watches.empty()) pods.Pump(stop);
  EXPECT_DOUBLE_EQ(waits["default/large"], 0.5);
  EXPECT_DOUBLE_EQ(waits["default/small"], 0.1004) << "another job's thousand are not its own";
  EXPECT_EQ(PodsSettleSeconds(0), 0.1);
  EXPECT_EQ(PodsSettleSeconds(100'000), 1) << "a failure is not seen later than that";
}

}  // namespace
}  // namespace trainyard::reconcile
