// Jobs of several turns (apply.h), with requests that take their time and a watch that is behind.
#include <string>

#include "tests/operator/trouble_fixture.h"

namespace trainyard::reconcile {
namespace {

class LaggingCacheTest : public TroubleTest {
 protected:
  static constexpr int64_t kWorkers = 520;  // more than a turn has

  // How often the deletion of a pod was asked for: of the one that was asked for least, and most.
  std::pair<int, int> Deletions() {
    int least = 1000, most = 0;
    for (int64_t worker = 0; worker < kWorkers; ++worker) {
      const int made = client_.made["delete pods job-1-" + std::to_string(worker)];
      least = std::min(least, made);
      most = std::max(most, made);
    }
    return {least, most};
  }
  void LiveWithoutPods(double seconds) {
    for (const Instant end = After(clock_.Steady(), seconds); SecondsBetween(clock_.Steady(), end) > 0;
         clock_.Advance(0.5)) {
      Pump(kJobs);
      (void)Look();
    }
  }
};

TEST_F(LaggingCacheTest, EachPodIsDeletedOnceInTenSeconds) {
  Start(kWorkers);
  Live(1);
  ASSERT_EQ(Pods(), static_cast<size_t>(kWorkers));
  for (int64_t worker = 0; worker < kWorkers; ++worker) BindPod("job-1-" + std::to_string(worker));
  Live(0.2);
  Edit({{"suspend", true}});
  LiveWithoutPods(8);
  EXPECT_EQ(Deletions(), std::pair(1, 1));
  LiveWithoutPods(8);
  EXPECT_EQ(Deletions(), std::pair(2, 2)) << "whoever does not see that it goes asks again";
  const int asked = client_.made["delete pods job-1-0"];
  Live(2);
  EXPECT_EQ(client_.made["delete pods job-1-0"], asked) << "it goes";
}

TEST_F(LaggingCacheTest, ALongCreationIsToldOfWhileItLasts) {
  client_.answer = [&](const std::string& request) {
    if (request.starts_with("create pods")) clock_.Advance(1);
    return Status::Ok();
  };
  Start(60);
  const Instant begin = clock_.Steady();
  double told = 0, longest = 0;
  for (int64_t created = 0; created < 60;) {
    Pump(kJobs);
    Pump(kPods);
    (void)Look();
    clock_.Advance(0.1);
    const int64_t now = StatusOfJob().is_null() ? 0 : StatusOfJob()["workers"].value("created", int64_t{0});
    const double passed = SecondsBetween(begin, clock_.Steady());
    ASSERT_LT(passed, 120);
    if (now == created) continue;
    EXPECT_EQ(StatusOfJob()["master"].contains("address"), true) << "whoever takes over has to know it";
    created = now;
    longest = std::max(longest, passed - told);
    told = passed;
  }
  // A turn of five seconds, in which the last pods of four requests may take one each, and the five between two writes.
  EXPECT_LT(longest, 15);
  EXPECT_LT(client_.made["patch trainingjobs job"], 20) << "no write for each pod";
}

}  // namespace
}  // namespace trainyard::reconcile
