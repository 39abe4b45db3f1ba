#include "operator/progress_poller.h"

#include <gtest/gtest.h>

#include <atomic>

#include "operator/api/worker_env.h"
#include "tests/operator/builders.h"
#include "tests/operator/peer.h"

namespace trainyard {
namespace {

using nlohmann::json;

class PollerTest : public testing::Test {
 protected:
  // A job whose rank 0 says where it serves its status.
  void Add(const std::string& name, const Peer& peer) { Add(name, peer, "uid-" + name); }
  // The same, and the pod is this owner's.
  void Add(const std::string& name, const Peer& peer, const std::string& owner) {
    json job = reconcile::JobObject(name, 1);
    job["metadata"]["uid"] = "uid-" + name;
    job["status"] = {{"attempt", 1}, {"phase", "Running"}};
    jobs_.Upsert(job);
    pods_.Upsert(
        {{"metadata",
          {{"name", name + "-1-0"},
           {"namespace", "default"},
           {"uid", "pod-" + name},
           {"ownerReferences", {{{"uid", owner}, {"controller", true}}}},
           {"labels",
            {{"trainyard.dev/job-name", name},
             {"trainyard.dev/job-uid", "uid-" + name},
             {"trainyard.dev/attempt", "1"},
             {"trainyard.dev/rank", "0"}}}}},
         {"spec",
          {{"containers",
            {{{"name", "trainer"}, {"env", {{{"name", env::kStatusPort}, {"value", std::to_string(peer.port())}}}}}}}}},
         {"status", {{"podIP", "127.0.0.1"}, {"phase", "Running"}}}});
  }
  static void Report(int connection, const std::string& uid) {
    if (!Peer::ReadRequest(connection)) return;
    Peer::Send(connection, "HTTP/1.1 200 OK\r\n\r\n" +
                               json{{"job_uid", uid}, {"attempt", 1}, {"step", 7}, {"total_steps", 9}}.dump());
  }
  SystemClock clock_;
  reconcile::JobStore jobs_{reconcile::JobFromApi, [](const auto&) { return std::string(); },
                            [](const std::string&) {}};
  TextPool texts_;
  reconcile::PodStore pods_{[this](const json& pod) { return reconcile::PodFromJson(pod, texts_); },
                            [](const reconcile::PodRecord& pod) { return pod.job_key.str(); },
                            [](const std::string&) {}};
};

TEST_F(PollerTest, StrangersCostNobodyElseTheirReports) {
  const Peer good([](int connection) { Report(connection, "uid-good"); });
  const Peer dripping([](int connection) {
    while (Peer::Send(connection, "x")) usleep(300'000);
  });
  const Peer huge([](int connection) {
    Peer::Send(connection, "HTTP/1.1 200 OK\r\n\r\n{\"job_uid\": \"uid-huge\", \"x\": \"");
    while (Peer::Send(connection, std::string(65536, 'x'))) {
    }
  });
  Add("dripping", dripping);
  Add("good", good);
  Add("huge", huge);
  for (int i = 0; i < 200; ++i) Add("dripping-" + std::to_string(i), dripping);
  ProgressPoller poller(jobs_, pods_, clock_, {.interval_seconds = 0.05}, [](const std::string&) {});
  poller.Start();
  for (int i = 0; i < 6000 && !(poller.Get("uid-good") && huge.connections() > 0); ++i) usleep(10'000);
  ASSERT_TRUE(poller.Get("uid-good"));
  EXPECT_EQ(poller.Get("uid-good")->progress.step, 7);
  EXPECT_FALSE(poller.Get("uid-huge"));
  // The other side takes connections one after the other, and may be behind.
  for (int i = 0; i < 6000 && dripping.connections() <= 100; ++i) usleep(10'000);
  EXPECT_GT(dripping.connections(), 100);
  const Instant start = SteadyNow();
  poller.Stop();
  EXPECT_LT(SecondsBetween(start, SteadyNow()), 10) << "in the middle of 200 exchanges";
}

TEST_F(PollerTest, AnAnswerOfAnotherJobIsDropped) {
  const Peer other([](int connection) { Report(connection, "uid-other"); });
  const Peer silent(Peer::Silent);
  Add("mine", other);
  Add("other", silent);
  ProgressPoller poller(jobs_, pods_, clock_, {.interval_seconds = 0.01},
                        [](const std::string& key) { ADD_FAILURE() << key; });
  poller.Start();
  for (int i = 0; i < 6000 && other.connections() < 3; ++i) usleep(10'000);
  EXPECT_GE(other.connections(), 3);
  EXPECT_FALSE(poller.Get("uid-mine"));
  EXPECT_FALSE(poller.Get("uid-other")) << "an address says nothing for another job";
}

TEST_F(PollerTest, APodThatOnlyCarriesTheLabelsOfAJobIsNotAsked) {
  const Peer stranger([](int connection) { Report(connection, "uid-mine"); });
  const Peer good([](int connection) { Report(connection, "uid-other"); });
  Add("mine", stranger, "uid-of-someone-else");
  Add("other", good);
  ProgressPoller poller(jobs_, pods_, clock_, {.interval_seconds = 0.01}, [](const std::string&) {});
  poller.Start();
  for (int i = 0; i < 6000 && good.connections() < 3; ++i) usleep(10'000);
  EXPECT_TRUE(poller.Get("uid-other"));
  EXPECT_FALSE(poller.Get("uid-mine")) << "anyone may write a label: steps and durable checkpoints would be theirs";
  EXPECT_EQ(stranger.connections(), 0);
}

TEST_F(PollerTest, AJobIsWokenWhenItsStatusTakesTheAnswer) {
  const Peer same([](int connection) { Report(connection, "uid-same"); });
  const Peer news([](int connection) { Report(connection, "uid-news"); });
  Add("same", same);
  Add("news", news);
  json written = reconcile::JobObject("same", 1);
  written["metadata"]["uid"] = "uid-same";
  written["status"] = {
      {"attempt", 1}, {"phase", "Running"}, {"progress", {{"step", 6}, {"lastUpdate", FormatTime(clock_.Now())}}}};
  jobs_.Upsert(written);
  std::atomic<int> woken{0};
  ProgressPoller poller(jobs_, pods_, clock_, {.interval_seconds = 0.01, .progress_interval_seconds = 3600},
                        [&](const std::string& key) {
                          EXPECT_EQ(key, "default/news");
                          ++woken;
                        });
  poller.Start();
  for (int i = 0; i < 6000 && (same.connections() < 5 || woken < 3); ++i) usleep(10'000);
  EXPECT_GE(same.connections(), 5);
  EXPECT_GE(woken, 3) << "until the status has it";
  ASSERT_TRUE(poller.Get("uid-same")) << "whoever looks for another reason has the newest";
  EXPECT_EQ(poller.Get("uid-same")->progress.step, 7);
}

}  // namespace
}  // namespace trainyard
