#include "trainer/train/plan_command.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/launch/preflight.h"
#include "trainer/parallel/flat_layout.h"
#include "trainer/task/tasks.h"
#include "trainer/train/plan.h"
#include "trainer/train/remedies.h"
#include "trainer/train/stage_memory.h"

namespace trainyard {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;  // of the JSON: docs/plan.md
constexpr const char* kNotCounted = "activations, which grow with batch.micro; batches that are read ahead; libraries";

struct Printed {
  const Config& config;
  int ranks;
  Hardware hardware;
  Decisions decisions;
  ModelDeclaration model;
  std::vector<Stage> stages;
  std::vector<PlannedMoment> moments;
  MemoryBudget budget;

  Footprint footprint() const { return {model, stages, decisions.parallel, ranks}; }
  int64_t Needed() const { return footprint().Needs(budget); }
  bool Fits() const { return static_cast<double>(Needed()) <= static_cast<double>(budget.bytes); }
  std::vector<Remedy> remedies() const { return Fits() ? std::vector<Remedy>() : Remedies(footprint(), budget); }
  int64_t Trains(const Stage& stage) const {
    int64_t n = 0;
    for (const ParameterSpec& spec : Trained(model, stage.trainable)) n += spec.numel();
    return n;
  }
  // Unknown where it follows from the data: train.epochs, and stages that are counted in epochs, or come after one.
  std::optional<int64_t> Steps(const Stage& stage) const {
    if (stages.size() == 1) return config.train.steps;
    return stage.steps > 0 ? std::optional(stage.steps) : std::nullopt;
  }
  // "40 steps", "2 epochs", "the rest of the run".
  std::string Length(const Stage& stage) const {
    if (stage.epochs > 0) return Format("%lld epochs", static_cast<long long>(stage.epochs));
    return stage.steps > 0 ? Format("%lld steps", static_cast<long long>(stage.steps)) : "the rest of the run";
  }
};

Json JsonOf(const std::optional<Space>& space) {
  if (!space) return {};
  return {{"path", space->path}, {"total_bytes", space->total_bytes}, {"free_bytes", space->free_bytes}};
}

Json JsonOf(const Hardware& hardware) {
  Json gpus = Json::array();
  for (const Gpu& gpu : hardware.gpus) {
    gpus.push_back({{"name", gpu.name},
                    {"total_bytes", gpu.total_bytes},
                    {"free_bytes", gpu.free_bytes ? Json(*gpu.free_bytes) : Json()},
                    {"compute_capability", Format("%d.%d", gpu.major, gpu.minor)}});
  }
  const Cpus& cpus = hardware.cpus;
  return {{"gpus", gpus},
          {"cpus",
           {{"count", cpus.count},
            {"why", cpus.why},
            {"machine", cpus.machine},
            {"affinity", cpus.affinity},
            {"cpuset", cpus.cpuset ? Json(*cpus.cpuset) : Json()},
            {"quota", cpus.quota ? Json(*cpus.quota) : Json()}}},
          {"memory", {{"bytes", hardware.memory.bytes}, {"source", hardware.memory.source}}},
          {"shm", JsonOf(hardware.shm)},
          {"disk", JsonOf(hardware.disk)}};
}

Json JsonOf(const std::vector<Decision>& decisions) {
  Json list = Json::array();
  for (const Decision& decision : decisions) {
    const Json value = std::visit([](const auto& v) { return Json(v); }, decision.value);
    list.push_back(
        {{"name", decision.name}, {"value", value}, {"source", NameOf(decision.source)}, {"why", decision.why}});
  }
  return list;
}

Json JsonOf(const std::vector<Variable>& environment) {
  Json list = Json::array();
  for (const Variable& v : environment) list.push_back({{"name", v.name}, {"value", v.value}, {"why", v.why}});
  return list;
}

Json JsonOf(const std::vector<Remedy>& remedies) {
  Json list = Json::array();
  for (const Remedy& r : remedies)
    list.push_back({{"change", r.change}, {"needs_bytes", r.needs}, {"saves_bytes", r.saves}, {"fits", r.fits}});
  return list;
}

Json BytesOf(const MemoryPlan& memory) {
  Json components = Json::object();
  for (const MemoryPlan::Component& component : memory.components) components[component.name] = component.bytes;
  return components;
}

// The components that lie in the host's memory where ranks compute on GPUs.
Json InHost(const MemoryPlan& memory) {
  Json names = Json::array();
  for (const MemoryPlan::Component& component : memory.components) {
    if (component.in_host) names.push_back(component.name);
  }
  return names;
}

Json ToJson(const Printed& p) {
  Json stages = Json::array();
  for (const PlannedMoment& moment : p.moments) {
    const Stage& stage = p.stages[moment.stage];
    if (moment.hand_over) {
      stages.push_back({{"hand_over_to", stage.name}, {"bytes_per_rank", BytesOf(moment.memory)}});
    } else {
      const std::optional<int64_t> steps = p.Steps(stage);
      stages.push_back({{"name", stage.name},
                        {"steps", steps ? Json(*steps) : Json()},
                        {"trained_parameters", p.Trains(stage)},
                        {"bytes_per_rank", BytesOf(moment.memory)}});
    }
  }
  const MemoryPlan& largest = Largest(p.moments, p.budget.of_one_rank).memory;
  return {{"format", kFormat},
          {"task", p.config.task.name},
          {"parameters", p.model.num_parameters()},
          {"trained_parameters", p.model.num_parameters(true)},
          {"ranks", p.ranks},
          {"stage", NameOf(p.decisions.parallel.stage)},
          {"hardware", JsonOf(p.hardware)},
          {"decisions", JsonOf(p.decisions.list)},
          {"environment", JsonOf(p.decisions.environment)},
          {"moments", stages},
          {"bytes_per_rank", BytesOf(largest)},
          {"in_host", InHost(largest)},
          {"bytes", p.Needed()},
          {"not_counted", kNotCounted},
          {"limit", {{"bytes", p.budget.bytes}, {"source", p.budget.source}, {"of_one_rank", p.budget.of_one_rank}}},
          {"fits", p.Fits()},
          {"remedies", JsonOf(p.remedies())}};
}

void Line(const std::string& name, const std::string& value) {
  std::printf("  %-32s %s\n", name.c_str(), value.c_str());
}

void PrintMoment(const Printed& p, const PlannedMoment& moment) {
  const Stage& stage = p.stages[moment.stage];
  if (const std::string name = NameOf(moment, p.stages); moment.hand_over) {
    std::printf("  %s:\n", name.c_str());
  } else if (!name.empty()) {
    std::printf("  %s: %s, %lld parameters trained:\n", name.c_str(), p.Length(stage).c_str(),
                static_cast<long long>(p.Trains(stage)));
  }
  for (const MemoryPlan::Component& component : moment.memory.components)
    Line("  " + component.name, HumanBytes(static_cast<double>(component.bytes)));
}

void Print(const Printed& p) {
  Line("task", p.config.task.name + ", " + p.config.task.options->Describe());
  Line("parameters", Format("%lld, of them %lld trained", static_cast<long long>(p.model.num_parameters()),
                            static_cast<long long>(p.model.num_parameters(true))));
  std::fputs(Describe(p.hardware, p.decisions).c_str(), stdout);
  std::fputs(DescribeMemory(p.model, p.decisions.parallel, p.stages, p.budget.of_one_rank).c_str(), stdout);
  if (p.stages.size() > 1) {
    for (const PlannedMoment& moment : p.moments) PrintMoment(p, moment);
  }
  const std::string peak = NameOf(Largest(p.moments, p.budget.of_one_rank), p.stages);
  Line(p.budget.of_one_rank ? "of a rank" : "together",
       HumanBytes(static_cast<double>(p.Needed())) + (peak.empty() ? "" : ", in the " + peak));
  Line(p.budget.source, HumanBytes(static_cast<double>(p.budget.bytes)));
  Line("not counted", kNotCounted);
  Line("verdict", p.Fits() ? HumanBytes(static_cast<double>(p.budget.bytes) - static_cast<double>(p.Needed())) +
                                 " are left for what is not counted"
                           : "does not fit; the cheapest remedies:");
  for (const Remedy& remedy : p.remedies()) std::printf("    %s\n", Describe(std::span(&remedy, 1)).c_str());
}

}  // namespace

int PrintPlan(const Config& config, std::optional<int> ranks, bool json) {
  Grounds grounds = GroundsHere(config, {});
  if (ranks) RequireSensibleRanks(*ranks, "--ranks");
  const int here = ranks.value_or(std::max<int>(1, static_cast<int>(grounds.hardware.gpus.size())));
  grounds.world = {.size = here, .local_size = here};
  Printed p{.config = config,
            .ranks = here,
            .hardware = grounds.hardware,
            .decisions = DecideWithoutData(grounds),
            .model = {},
            .stages = StagesOf(config),
            .moments = {},
            .budget = BudgetOf(grounds.hardware)};
  DeclareModel(config, p.model);
  p.moments = PlanMoments(p.model, p.decisions.parallel, p.stages);
  if (json) {
    std::printf("%s\n", ToJson(p).dump(1, ' ', false, Json::error_handler_t::replace).c_str());
  } else {
    Print(p);
  }
  return static_cast<int>(p.Fits() ? ExitCode::kDone : ExitCode::kOutOfMemory);
}

}  // namespace trainyard
