#include "trainer/task/algorithm_distillation/synth.h"

#include <atomic>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/progress.h"
#include "trainer/base/text.h"
#include "trainer/task/algorithm_distillation/sources.h"

namespace trainyard::ad {
namespace {

using Source = void (*)(const DarkRoom&, int64_t, uint64_t, Histories&);
struct Size {
  int64_t streams, length;
};
const std::map<std::string, Source> kSources = {{"shared_q", SharedTableQ}, {"ad_epsilon", AdEpsilon}, {"ppo", Ppo}};
// The full size is the original's: 13 rollouts of 80 steps in 100 streams.
const std::map<std::string, Size> kSizes = {{"tiny", {2, 240}}, {"small", {10, 1000}}, {"full", {100, 1040}}};

template <class T>
const T& Choose(const std::map<std::string, T>& table, const std::string& name, const std::string& flag) {
  if (auto it = table.find(name); it != table.end()) return it->second;
  std::vector<std::string> names;
  for (const auto& [key, value] : table) names.push_back(key);
  const std::string nearest = NearestName(name, names);
  throw UsageError(flag + ": " + name + " is not allowed; expected one of " + Join(names) +
                   (nearest.empty() ? "" : " (did you mean " + nearest + "?)"));
}

void Play(const SynthOptions& options, const TaskSet& set, Source source, Histories& histories) {
  const auto total = static_cast<int64_t>(set.tasks.size());
  std::atomic<int64_t> next{0}, done{0};
  std::vector<std::jthread> threads;
  const unsigned count =
      options.threads > 0 ? static_cast<unsigned>(options.threads) : std::max(1u, std::thread::hardware_concurrency());
  for (unsigned i = 0; i < count; ++i) {
    threads.emplace_back([&] {
      for (int64_t task; (task = next++) < total;) {
        source(set.tasks[static_cast<size_t>(task)], task, options.seed, histories);
        ++done;
      }
    });
  }
  Progress progress("histories " + options.source, total, ProgressStyleFromEnvironment());
  while (done < total) {
    progress.Update(done, "tasks");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  progress.Update(total, "tasks");
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

}  // namespace

void Synthesize(const SynthOptions& options, const fs::path& out) {
  const Source source = Choose(kSources, options.source, "--source");
  const Size size = Choose(kSizes, options.size, "--size");
  Choose<int>({{"darkroom", 0}, {"darkroom_permuted", 0}}, options.env, "--env");
  Choose<int>({{"hdf5", 0}, {"npy", 0}}, options.format, "--format");
  RequireWritableDirectory(out, "--out");
  const TaskSet set = MakeTaskSet(options.env);
  Histories histories(static_cast<int64_t>(set.tasks.size()), size.streams, size.length);
  Play(options, set, source, histories);
  if (options.format == "hdf5") {
    WriteHdf5(histories, out / Format("history_%s_%s_alg-seed%llu.hdf5", options.env.c_str(), options.source.c_str(),
                                      static_cast<unsigned long long>(options.seed)));
  } else {
    WriteNpyFolders(histories, out);
  }
  WriteFileAtomic(out / "truth.json", Truth(options, set, histories).dump(1) + "\n");
}

}  // namespace trainyard::ad
