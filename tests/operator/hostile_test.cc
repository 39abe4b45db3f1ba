// What strangers may write into objects, files and answers: no crash, bounded memory, and other jobs go on. The seed is
// TRAINYARD_TEST_SEED, or 1; a failure names it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "operator/local/api/memory_client.h"
#include "operator/reconcile/reconciler.h"
#include "tests/fuzz/targets.h"
#include "tests/operator/builders.h"
#include "tests/operator/max_resident.h"
#include "tests/operator/reconciler_parts.h"
#include "tests/operator/scripted_client.h"

namespace trainyard::reconcile {
namespace {

constexpr int kCases = 500;

uint64_t Seed() {
  const char* seed = std::getenv("TRAINYARD_TEST_SEED");
  return seed ? std::strtoull(seed, nullptr, 10) : 1;
}

// Random changes of values and of texts.
class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}
  size_t Below(size_t n) { return random_() % n; }

  // `object` with one to four of its places changed.
  Json Changed(Json object) {
    for (size_t i = 0, n = 1 + Below(4); i < n; ++i) Change(object);
    return object;
  }
  // `text` with bytes changed, lost, repeated or added.
  std::string ChangedText(std::string text) {
    for (size_t i = 0, n = 1 + Below(8); i < n && !text.empty(); ++i) {
      const size_t at = Below(text.size());
      switch (Below(5)) {
        case 0:
          text[at] = static_cast<char>(Below(256));
          break;
        case 1:
          text.erase(at, 1 + Below(20));
          break;
        case 2:
          text.insert(at, text.substr(Below(text.size()), Below(60)));
          break;
        case 3:
          text.insert(at, std::string(1 + Below(3), "[{\"\\\r\n\0:"[Below(8)]));
          break;
        default:
          text.insert(at, std::to_string(random_()));
          break;
      }
    }
    return text;
  }

 private:
  void Change(Json& root) {
    Json* place = &root;
    while (place->is_structured() && !place->empty() && Below(6) != 0) {
      auto child = place->begin();
      std::advance(child, static_cast<int64_t>(Below(place->size())));
      if (place->is_object() && Below(12) == 0) {
        place->erase(child);
        return;
      }
      place = &*child;
    }
    if (place != &root) *place = Odd();
  }
  Json Odd() {
    switch (Below(16)) {
      case 0:
        return nullptr;
      case 1:
        return true;
      case 2:
        return std::numeric_limits<int64_t>::min();
      case 3:
        return std::numeric_limits<uint64_t>::max();
      case 4:
        return 1e308;
      case 5:
        return -1;
      case 6:
        return 9007199254740993;
      case 7:
        return "";
      case 8:
        return std::string(1 << 20, 'x');
      case 9:
        return std::string("\0\x1f \xef\xbf\xbf\xf4\x8f\xbf\xbf", 10);  // what is no UTF-8 is no JSON
      case 10:
        return "9999-12-31T23:59:59Z";
      case 11:
        return "-0001-99-99T99:99:99+99:99";
      case 12:
        return Json::array({nullptr, 1, "a", Json::object(), Json::array()});
      case 13:
        return Json{{"", nullptr}, {"name", 7}, {"a/b", Json::array()}};
      case 14:
        return Deep();
      default:
        return "18446744073709551616";
    }
  }
  // As deep as what is read from the API may be.
  static Json Deep() {
    Json value = 1;
    for (int i = 0; i < 90; ++i) value = i % 2 ? Json{{"a", std::move(value)}} : Json::array({std::move(value)});
    return value;
  }
  std::mt19937_64 random_;
};

std::vector<std::string> Seeds(const std::string& target) {
  std::vector<std::string> texts;
  for (const auto& file : std::filesystem::directory_iterator(std::string(TRAINYARD_FUZZ_SEEDS) + "/" + target)) {
    std::ifstream in(file.path(), std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    texts.push_back(text.str());
  }
  return texts;
}

struct Target {
  const char* name;
  void (*run)(std::string_view bytes);
};

class HostileBytes : public testing::TestWithParam<Target> {};

TEST_P(HostileBytes, EndInAValueOrAnError) {
  const auto& [name, run] = GetParam();
  Mutator mutator(Seed());
  const auto seeds = Seeds(name);
  ASSERT_FALSE(seeds.empty());
  for (const std::string& seed : seeds) run(seed);
  for (int i = 0; i < kCases; ++i) {
    const std::string text = mutator.ChangedText(seeds[mutator.Below(seeds.size())]);
    SCOPED_TRACE("seed " + std::to_string(Seed()) + ", case " + std::to_string(i));
    EXPECT_NO_THROW(run(text)) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(All, HostileBytes,
                         testing::Values(Target{"WatchFrames", fuzz::WatchFrames},
                                         Target{"Kubeconfig", fuzz::Kubeconfig},
                                         Target{"TrainingJob", fuzz::TrainingJob}, Target{"HttpHead", fuzz::HttpHead}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(HostileObjects, AreKeptOrPassedOverAndNeverThrow) {
  Mutator mutator(Seed());
  const auto seeds = Seeds("TrainingJob");
  const int64_t before = MaxResidentMiB();
  for (int i = 0; i < kCases; ++i) {
    for (const std::string& seed : seeds) {
      const Json object = mutator.Changed(Json::parse(seed));
      SCOPED_TRACE("seed " + std::to_string(Seed()) + ", case " + std::to_string(i));
      EXPECT_NO_THROW((void)JobFromApi(object));
      EXPECT_NO_THROW((void)PodFromJson(object));
      EXPECT_NO_THROW((void)SortPods(JobFromApi(object), {}));
    }
  }
  EXPECT_LT(MaxResidentMiB() - before, kMemoryFactor * 200);
}

// The API as an honest one holds it, but for what it says of the jobs and pods named victim.
class Twisted : public local::MemoryClient {
 public:
  Twisted(local::MemoryApi& api, Mutator& mutator) : MemoryClient(api), mutator_(mutator) {}
  Result<kube::ListEnd> List(const kube::Resource& resource, const std::string& ns, const kube::ListOptions& options,
                             const std::function<void(const Json&)>& on_item) override {
    return MemoryClient::List(resource, ns, options, [&](const Json& item) { on_item(twisting ? Twist(item) : item); });
  }
  // What there is comes in lists here, one item after the other.
  Status Watch(const kube::Resource& resource, const std::string& ns, const kube::WatchOptions& options,
               const std::function<bool(kube::WatchEvent)>& on_event, const kube::StopFlag& stop) override {
    if (options.initial_events) return Status(Code::kInvalid, "sendInitialEvents is forbidden");
    return MemoryClient::Watch(resource, ns, options, on_event, stop);
  }
  bool twisting = false;

 private:
  Json Twist(Json item) {
    const std::string name = item["metadata"]["name"];
    if (!name.starts_with("victim")) return item;
    item = mutator_.Changed(item);
    // The name and the namespace are the path's: nobody can write others.
    if (!item["metadata"].is_object()) item["metadata"] = Json::object();
    item["metadata"]["name"] = name;
    item["metadata"]["namespace"] = "default";
    return item;
  }
  Mutator& mutator_;
};

class HostileReconcile : public testing::Test {
 protected:
  // One operator's life: lists, then reconciles of both jobs.
  void Live(int rounds) {
    Caches caches(client_, clock_, "", 1, [](const std::string&, double) {});
    kube::EventRecorder events(client_, clock_, "test");
    Reconciler reconciler(client_, clock_, caches, reports_, events, log_, {.parallel_requests = 1});
    StopFlag stopped;
    stopped.Set();  // Only the lists: no watch waits.
    for (kube::Reflector* reflector : caches.reflectors()) reflector->Pump(stopped);
    EXPECT_EQ(caches.jobs().skips() + caches.pods().skips(), 0);
    for (int i = 0; i < rounds; ++i) {
      for (const char* key : {"default/victim", "default/healthy"}) {
        try {
          (void)reconciler.Reconcile(key);
        } catch (const std::exception& error) {
          ADD_FAILURE() << key << ": " << error.what();
        }
      }
    }
  }
  void Create(const std::string& name) {
    const Json job = JobObject(name, 2);
    ASSERT_TRUE(client_.Create(kube::kTrainingJobs, "default", job, {}).ok());
  }
  int Pods(const std::string& prefix) {
    int count = 0;
    (void)client_.List(kube::kPods, "default", {}, [&](const Json& pod) {
      count += pod["metadata"]["name"].get<std::string>().starts_with(prefix) ? 1 : 0;
    });
    return count;
  }

  kube::TurnedClock clock_;
  Mutator mutator_{Seed()};
  local::MemoryApi api_{clock_, 1};
  Twisted client_{api_, mutator_};
  const NoReports reports_;
  const Logger log_{-1, Logger::Form::kText, LogLevel::kError};
};

TEST_F(HostileReconcile, AJobThatIsTwistedCostsTheOthersNothing) {
  clock_.Pass(1e9);
  Create("victim");
  const int64_t before = MaxResidentMiB();
  for (int i = 0; i < kCases; ++i) {
    SCOPED_TRACE("seed " + std::to_string(Seed()) + ", case " + std::to_string(i));
    Create("healthy");
    client_.twisting = true;
    Live(1);  // the attempt
    clock_.Pass(60);
    Live(2);  // its pods
    client_.twisting = false;
    EXPECT_EQ(Pods("healthy"), 2);
    EXPECT_LE(Pods("victim"), 2 * (i + 2)) << "two workers, and an attempt a life at most";
    ASSERT_TRUE(client_.Delete(kube::kTrainingJobs, "default", "healthy", {}).ok());
    while (api_.CollectGarbage() > 0) {
    }
    if (testing::Test::HasFailure()) break;
  }
  EXPECT_LT(MaxResidentMiB() - before, kMemoryFactor * 150);
}

}  // namespace
}  // namespace trainyard::reconcile
