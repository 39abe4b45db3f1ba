#include "tests/task/small_jobs.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "trainer/config/load.h"
#include "trainer/task/tasks.h"

namespace trainyard {
namespace {

const TaskEntry& EntryOf(const std::string& name) {
  const auto entry = std::ranges::find_if(Tasks(), [&](const TaskEntry& t) { return t.name == name; });
  if (entry == Tasks().end()) throw std::logic_error("no task " + name);
  return *entry;
}

void WriteTiny(Synthesis& synthesis, const std::filesystem::path& data) {
  FieldTable table;
  synthesis.Declare(table);
  for (const Field& field : table.fields()) {
    if (field.path == "--size") field.set("tiny");
  }
  synthesis.Write(data);
}

}  // namespace

const std::vector<SmallJob>& SmallJobs() {
  // The final evaluations look at more than the periodic ones.
  static const std::vector<SmallJob> jobs = {
      {"algorithm_distillation",
       {"model.context=24", "model.dim=16", "model.layers=2", "model.heads=2", "task.eval_windows=40",
        "task.eval_episodes=2", "task.eval_plays=1"}},
      {"language_model",
       {"model.context=24", "model.dim=16", "model.layers=2", "model.heads=2", "task.eval_windows=40"}},
      {"hybrid_vit_cascade",
       {"task.from_best=false", "data.val_fraction=0.2", "task.eval_samples=1", "task.sampling_steps=1"}},
      {"mace_survival", {"model.width=2", "data.volume=[8,8,4]"}},
      {"patchwork", {}}};
  return jobs;
}

Config ConfigOf(const SmallJob& job, const std::filesystem::path& data) {
  const TaskEntry& entry = EntryOf(job.task);
  if (entry.synthesis) WriteTiny(*entry.synthesis(), data);
  std::vector<std::string> sets = job.sets;
  for (const char* set : {"model.dropout=0.1", "batch.global=8", "train.steps=2"}) sets.push_back(set);
  sets.push_back("data.path=" + data.string());
  return ParseConfig("task: {name: " + std::string(job.task) + "}", "test", sets, TaskDeclarations());
}

}  // namespace trainyard
