// A key is not acted on before the cache has our own last write, unless the server itself went back.
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/operator/builders.h"
#include "tests/operator/reconciler_parts.h"
#include "tests/operator/scripted_client.h"

namespace trainyard::reconcile {
namespace {

class Server : public kube::ScriptedClient {
 public:
  using ScriptedClient::ScriptedClient;
  Result<Json> MergePatch(const kube::Resource&, const std::string&, const std::string&, const std::string&,
                          const Json& patch, const kube::WriteOptions&) override {
    patches.push_back(patch["metadata"]["resourceVersion"]);
    return kube::ObjectAt("job", 905);
  }
  std::vector<std::string> patches;
};

Json JobsAt(int version) {
  Json job = JobObject("job", 1);
  job["metadata"]["resourceVersion"] = std::to_string(version);
  return {{"metadata", {{"resourceVersion", std::to_string(version)}}}, {"items", {job}}};
}

TEST(OwnWrites, AreWaitedForUntilTheServerIsRestoredFromABackup) {
  kube::TurnedClock clock;
  Server server(clock);
  const Logger log(STDERR_FILENO, Logger::Form::kText, LogLevel::kError);
  Caches caches(server, clock, "", 1, [](const std::string&, double) {});
  const NoReports reports;
  kube::EventRecorder events(server, clock, "test");
  Reconciler reconciler(server, clock, caches, reports, events, log, {});
  const auto reconcile = [&] { return reconciler.Reconcile("default/job"); };
  const StopFlag stop;
  kube::Reflector& jobs = *caches.reflectors()[0];

  server.lists = {JobsAt(900)};
  jobs.Pump(stop);
  ASSERT_TRUE(reconcile().status.ok());
  ASSERT_EQ(server.patches, std::vector<std::string>{"900"});
  EXPECT_EQ(reconcile().requeue_after_seconds, 1.0);
  EXPECT_EQ(server.patches.size(), 1u) << "the cache is behind: 900 of 905";

  // etcd as it was at version 20; ours never existed there.
  server.watches = {{{}, 30, Status(Code::kUnavailable, "read: the connection broke")}};
  server.reaches = {kube::StatusFromApi(504, kube::TooLarge())};
  server.lists = {JobsAt(20)};
  jobs.Pump(stop);
  jobs.Pump(stop);
  jobs.Pump(stop);
  ASSERT_TRUE(reconcile().status.ok());
  EXPECT_EQ(server.patches, (std::vector<std::string>{"900", "20"})) << "905 will not come for a long time";
  EXPECT_EQ(reconcile().requeue_after_seconds, 1.0) << "and the new write is waited for like any other";
}

}  // namespace
}  // namespace trainyard::reconcile
