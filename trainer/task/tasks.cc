#include "trainer/task/tasks.h"

#include "trainer/base/error.h"
#include "trainer/task/algorithm_distillation/distillation_task.h"

namespace trainyard {
namespace {

constexpr TaskEntry kTasks[] = {
    {"algorithm_distillation", "a causal transformer that learns in context from learning histories on Dark Room",
     ad::BuildDistillationTask},
    {"mace_survival", "3-D ResNet survival analysis of CT volumes with a Cox loss", nullptr},
    {"hybrid_vit_cascade", "progressive diffusion from X-ray to CT", nullptr},
    {"mimic_cxr", "chest X-ray question answering and findings", nullptr},
    {"prs_med", "segmentation from a prompt, LoRA on a language model", nullptr},
};

}  // namespace

std::span<const TaskEntry> Tasks() { return kTasks; }

std::unique_ptr<Task> BuildTask(const Config& config) {
  std::string known;
  for (const TaskEntry& entry : kTasks) {
    if (entry.name == config.task.name && entry.build) return entry.build(config);
    if (entry.build) known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  throw ConfigError("task.name: " + config.task.name + " is not allowed; expected one of " + known);
}

}  // namespace trainyard
