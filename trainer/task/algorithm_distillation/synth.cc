#include "trainer/task/algorithm_distillation/synth.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "trainer/base/file.h"
#include "trainer/base/for_each.h"
#include "trainer/base/progress.h"
#include "trainer/base/text.h"
#include "trainer/task/algorithm_distillation/sources.h"

namespace trainyard::ad {
namespace {

using Source = void (*)(const DarkRoom&, int64_t, uint64_t, Histories&, const StepsPlayed&);
const std::map<std::string, Source> kSources = {{"ad_epsilon", AdEpsilon}, {"ppo", Ppo}, {"shared_q", SharedTableQ}};
struct Size {
  int64_t streams, length;
};
// The full size is the original's: 13 rollouts of 80 steps in 100 streams.
const std::map<std::string, Size> kSizes = {{"tiny", {2, 240}}, {"small", {10, 1000}}, {"full", {100, 1040}}};

struct SynthOptions {
  std::string source = "shared_q";
  std::string env = "darkroom";
  std::string size = "small";
  std::string format = "hdf5";
  int64_t seed = 42;
  int64_t threads = 0;
};

void Play(const SynthOptions& options, const TaskSet& set, Source source, Histories& histories) {
  const auto total = static_cast<int64_t>(set.tasks.size());
  // A task takes long: its steps are counted.
  std::atomic<int64_t> steps{0};
  const auto play = [&](int64_t task) {
    source(set.tasks[static_cast<size_t>(task)], task, static_cast<uint64_t>(options.seed), histories,
           [&](int64_t played) { steps += played; });
  };
  const int64_t all = total * histories.length();
  Progress progress("playing " + options.source, all, ProgressStyleFromEnvironment());
  progress.Await(0, "playing " + options.source + ", first steps");
  ForEach(total, options.threads, play, [&](int64_t done) {
    const int64_t played = done == total ? all : std::min<int64_t>(steps, all - 1);
    if (played > 0)
      progress.Update(played, Format("steps, %lld of %lld tasks played", static_cast<long long>(done),
                                     static_cast<long long>(total)));
  });
}

void WriteHistories(const SynthOptions& options, const Histories& histories, const fs::path& out) {
  Progress progress("writing", 1, ProgressStyleFromEnvironment(), Progress::End::kNothing);
  progress.Await(0, "writing into " + out.string());
  if (options.format == "hdf5") {
    WriteHdf5(histories, out / Format("history_%s_%s_alg-seed%lld.hdf5", options.env.c_str(), options.source.c_str(),
                                      static_cast<long long>(options.seed)));
  } else {
    WriteNpyFolders(histories, out);
  }
}

nlohmann::json Truth(const SynthOptions& options, const TaskSet& set, const Histories& histories) {
  nlohmann::json tasks = nlohmann::json::array();
  for (const DarkRoom& room : set.tasks) {
    tasks.push_back({{"goal", {room.goal.row, room.goal.column}},
                     {"actions", room.meaning},
                     {"optimal_return", room.OptimalReturn()},
                     {"random_return", RandomReturn(room)}});
  }
  return {{"source", options.source},
          {"env", options.env},
          {"seed", options.seed},
          {"streams", histories.streams()},
          {"transitions", histories.length()},
          {"fingerprint", histories.Fingerprint()},
          {"train", set.train},
          {"test", set.test},
          {"tasks", tasks}};
}

class HistorySynthesis : public Synthesis {
 public:
  void Declare(FieldTable& t) override {
    t.Choice("--size", o_.size, {"tiny", "small", "full"}, FieldClass::kIdentity, "how much");
    t.Int("--seed", o_.seed, 0, FieldClass::kIdentity, "the same seed gives the same bytes");
    t.Choice("--source", o_.source, {"shared_q", "ad_epsilon", "ppo"}, FieldClass::kIdentity, "who learns");
    t.Choice("--env", o_.env, {"darkroom", "darkroom_permuted"}, FieldClass::kIdentity, "the environment");
    t.Choice("--format", o_.format, {"hdf5", "npy"}, FieldClass::kIdentity, "one file, or a folder for each task");
    t.Int("--threads", o_.threads, 0, FieldClass::kFree, "0 is one per processor", 1024);
  }

  std::string settings() const override { return o_.env == Options().env ? "" : "task.env: " + o_.env; }

  void Write(const fs::path& out) override {
    RequireWritableDirectory(out, "--out");
    const Size size = kSizes.at(o_.size);
    const TaskSet set = MakeTaskSet(o_.env);
    Histories histories(static_cast<int64_t>(set.tasks.size()), size.streams, size.length);
    Play(o_, set, kSources.at(o_.source), histories);
    WriteHistories(o_, histories, out);
    WriteFileAtomic(out / "truth.json", Truth(o_, set, histories).dump(1) + "\n");
  }

 private:
  SynthOptions o_;
};

}  // namespace

std::unique_ptr<Synthesis> MakeSynthesis() { return std::make_unique<HistorySynthesis>(); }

}  // namespace trainyard::ad
