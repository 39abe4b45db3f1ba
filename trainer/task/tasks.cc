#include "trainer/task/tasks.h"

#include <stdexcept>

#include "trainer/task/algorithm_distillation/distillation_task.h"
#include "trainer/task/algorithm_distillation/options.h"
#include "trainer/task/algorithm_distillation/synth.h"
#include "trainer/task/hybrid_vit_cascade/cascade_task.h"
#include "trainer/task/hybrid_vit_cascade/options.h"
#include "trainer/task/hybrid_vit_cascade/synth.h"
#include "trainer/task/language_model/language_task.h"
#include "trainer/task/language_model/options.h"
#include "trainer/task/language_model/synth.h"
#include "trainer/task/mace_survival/mace_task.h"
#include "trainer/task/mace_survival/options.h"
#include "trainer/task/mace_survival/synth.h"

namespace trainyard {
namespace {

constexpr TaskEntry kTasks[] = {
    {{"algorithm_distillation", "a causal transformer that learns in context from learning histories on Dark Room",
      ad::MakeOptions},
     ad::MakeSynthesis,
     ad::DeclareTransformer,
     ad::BuildDistillationTask},
    {{"language_model", "GPT-2 on tokens or plain text", lm::MakeOptions},
     lm::MakeSynthesis,
     lm::DeclareGpt2,
     lm::BuildLanguageTask},
    {{"mace_survival", "3-D ResNet survival analysis of CT volumes with a Cox loss", mace::MakeOptions},
     mace::MakeSynthesis,
     mace::DeclareRiskModel,
     mace::BuildMaceTask,
     mace::StagesOf},
    {{"hybrid_vit_cascade", "volumes of a CT from two X-rays, by diffusion models of growing size", hvc::MakeOptions},
     hvc::MakeSynthesis,
     hvc::DeclareCascade,
     hvc::BuildCascadeTask,
     hvc::CascadeStages},
    {{"mimic_cxr", "chest X-ray question answering and findings", nullptr}, nullptr, nullptr, nullptr},
    {{"prs_med", "segmentation from a prompt, LoRA on a language model", nullptr}, nullptr, nullptr, nullptr},
};

}  // namespace

std::span<const TaskEntry> ShippedTasks() { return kTasks; }

std::vector<TaskDeclaration> TaskDeclarations() { return {Tasks().begin(), Tasks().end()}; }

namespace {

const TaskEntry& EntryOf(const Config& config) {
  for (const TaskEntry& entry : Tasks()) {
    if (entry.name == config.task.name && entry.build) return entry;
  }
  throw std::logic_error("task.name: " + config.task.name + " is in no table");
}

}  // namespace

void DeclareModel(const Config& config, ModelDeclaration& model) { EntryOf(config).declare(config, model); }

std::vector<Stage> StagesOf(const Config& config) {
  const TaskEntry& entry = EntryOf(config);
  return entry.stages ? entry.stages(config) : std::vector<Stage>(1);
}

std::unique_ptr<Task> BuildTask(const Config& config) { return EntryOf(config).build(config); }

}  // namespace trainyard
