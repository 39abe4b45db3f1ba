#include "tests/sim/simulation.h"

#include <algorithm>

#include "tests/operator/builders.h"

namespace trainyard::sim {

Scenario::Scenario(Dice& dice)
    : operators(dice.Chance(0.35) ? 2 : 1),
      one_leads(dice.Chance(0.5)),
      jobs(1 + dice.Below(2)),
      large(dice.Chance(0.02)),
      failures(dice.Chance(0.7)),
      disruptions(dice.Chance(0.6)),
      people(dice.Chance(0.6)),
      quota(dice.Chance(0.15)),
      doomed(dice.Chance(0.25)),
      interleave(dice.Chance(0.3) ? 1 : dice.Between(0.02, 0.5)) {
  cluster = {.failure = failures || doomed ? 0.08 : 0,
             .disruption = disruptions ? 0.03 : 0,
             .lost_node = disruptions && dice.Chance(0.4) ? 0.02 : 0,
             .silence = dice.Chance(0.3) ? 0.5 : 0,
             .hang = failures && dice.Chance(0.3) ? 0.05 : 0,
             .stuck = failures && dice.Chance(0.3) ? 0.1 : 0,
             .good_attempt = doomed ? 1000000 : 1 + dice.Below(6)};
}

Simulation::Simulation(uint64_t seed, bool trace)
    : dice_(seed),
      scenario_(dice_),
      trouble_{.level = 0.5, .interleave = scenario_.interleave},
      api_(clock_, seed),
      mirror_(api_),
      training_(dice_, clock_),
      reports_(training_, clock_, dice_),
      cluster_(api_, mirror_, clock_, dice_, training_, scenario_.cluster),
      invariants_(mirror_, training_, clock_, scenario_.operators),
      oracle_(mirror_, reports_, clock_, scenario_.operators,
              [this](const std::string& what) { invariants_.Break(what); }),
      operators_(scenario_.operators),
      trace_(trace) {
  if (trace) Trace();
  mirror_.KeepLists();
  for (size_t i = 0; i < operators_.size(); ++i) StartOperator(i);
}

std::string Simulation::Run() {
  for (int64_t i = 0; i < scenario_.jobs; ++i) CreateJob("job" + std::to_string(i));
  for (int step = 0; step < kTroubledSteps + kCalmSteps; ++step) {
    if (step == kTroubledSteps) Calm();
    Act();
    if (!invariants_.broken().empty()) return invariants_.broken();
    if (calm_ && AllEnded()) return CheckEnd();
  }
  return "a job has not come to its end:\n" + Phases();
}

void Simulation::StartOperator(size_t i) {
  const std::string name = "operator-" + std::to_string(++started_);
  if (operators_[i]) invariants_.Forget(operators_[i]->name());
  operators_[i] = nullptr;  // before the next: it may hold what the next one makes
  operators_[i] = std::make_unique<OperatorProcess>(name, api_, mirror_, clock_, dice_, trouble_, reports_);
  OperatorProcess& started = *operators_[i];
  oracle_.Forgot();
  started.client().on_lost_creation = [this] { oracle_.Forgot(); };
  started.client().at_server = [this, &started](bool begins) {
    invariants_.Writing(begins ? &started.basis() : nullptr);
    oracle_.Writing(begins ? &started.basis() : nullptr);
  };
  started.client().on_request = [this, name](const char* verb, const kube::Resource& resource,
                                             const std::string& object, const Json* body) {
    if (trace_) Note(name + " " + verb + " " + resource.plural + " " + object);
    invariants_.Sent(name, verb, resource, object, body);
  };
}

Image Simulation::RollImage() {
  Image image;
  image.ours = dice_.Chance(0.7);
  image.exit_on_stop = image.ours ? 75 : dice_.Chance(0.5) ? 0 : 143;
  image.sidecar = dice_.Chance(0.15);
  image.knows_steps = dice_.Chance(0.8);
  image.steps = 4 + dice_.Below(12);
  image.checkpoint_every = 1 + dice_.Below(5);
  image.lingers = dice_.Chance(0.15);
  if (scenario_.doomed && dice_.Chance(0.6)) {
    image.bug_step = 1 + dice_.Below(image.steps);
    image.bug_code = dice_.Chance(0.2) ? 2 : dice_.Chance(0.5) ? 70 : 139;
  }
  return image;
}

Json Simulation::Spec(int64_t workers) {
  // Short waits: the more attempts while there is trouble, the more can go wrong.
  const int64_t first = dice_.Below(3);
  Json rules = Json::array();
  // Not for a job that never gets well: its free restarts never end it, as they should not.
  if (dice_.Chance(0.2) && !scenario_.doomed)
    rules.push_back({{"onExitCodes", {1, 69}}, {"action", "RestartUncharged"}});
  if (scenario_.doomed && dice_.Chance(0.3)) rules.push_back({{"onExitCodes", {73, 74}}, {"action", "Fail"}});
  if (dice_.Chance(0.1)) rules.push_back({{"onExitCodes", {75}}, {"action", "Restart"}});
  Json deadlines = Json::object();
  const int64_t least = 20 + 2 * workers;  // with less, many workers never all come in time
  if (dice_.Chance(0.5)) deadlines["scheduleSeconds"] = least + dice_.Below(60);
  if (dice_.Chance(0.5)) deadlines["startSeconds"] = least + dice_.Below(60);
  if (dice_.Chance(0.8)) deadlines["stallSeconds"] = 40 + dice_.Below(60);
  if (dice_.Chance(0.8)) deadlines["terminateSeconds"] = 1 + dice_.Below(20);
  if (scenario_.doomed && dice_.Chance(0.3)) deadlines["activeSeconds"] = 30 + dice_.Below(300);
  return {{"deadlines", deadlines},
          {"checkpoint", {{"graceSeconds", dice_.Below(20)}}},
          {"successPolicy", dice_.Chance(0.15) ? "RankZero" : "AllWorkers"},
          {"ttlSecondsAfterFinished", dice_.Chance(0.1) ? Json(dice_.Below(20)) : Json()},
          {"restart",
           {{"maxRestarts", scenario_.doomed ? dice_.Below(5) : 30},
            {"sameStepLimit", scenario_.doomed ? 1 + dice_.Below(4) : 1000},
            {"backoff", {{"initialSeconds", first}, {"maxSeconds", 5}}},
            {"avoidNodes", {{"afterFailures", 1 + dice_.Below(3)}}},
            {"rules", rules}}},
          {"cleanPodPolicy", dice_.Chance(0.6)   ? "Running"
                             : dice_.Chance(0.5) ? "All"
                                                 : "None"}};
}

void Simulation::CreateJob(const std::string& name) {
  Json job = reconcile::JobObject(name, scenario_.large && name == "job0" ? 64 : 1 + dice_.Below(4));
  job["spec"].update(Spec(job["spec"]["workers"]));
  const Image image = RollImage();
  if (image.sidecar) job["spec"]["template"]["spec"]["containers"].push_back({{"name", "sidecar"}, {"image", "proxy"}});
  const local::ApiResult created = api_.Create(kube::kTrainingJobs, kNamespace, job, {});
  if (created.ok()) training_.SetImage(created.body["metadata"]["uid"], image);
}

void Simulation::Act() {
  // Most of what happens, happens soon after something else.
  clock_.Advance(dice_.Chance(0.6) ? dice_.Between(0, 0.1) : dice_.Between(0, 1.5));
  if (dice_.Chance(0.1)) mirror_.KeepLists();
  switch (dice_.Below(8)) {
    case 0:
      cluster_.Step();
      invariants_.LookAtProcesses();
      break;
    case 1:
      if (dice_.Chance(0.3)) api_.CollectGarbage();
      break;
    default:
      ActOf(static_cast<size_t>(dice_.Below(static_cast<int64_t>(operators_.size()))));
  }
  if (!calm_ && scenario_.people && dice_.Chance(0.01)) Meddle();
  if (scenario_.people && dice_.Chance(calm_ ? 0.02 : 0.002)) DeleteOrphans();
  if (!calm_ && dice_.Chance(0.01)) leader_ = operators_.size() - 1 - leader_;
}

void Simulation::ActOf(size_t i) {
  try {
    switch (dice_.Below(7)) {
      case 0:
        return operators_[i]->Pump(0);
      case 1:
        return operators_[i]->Pump(1);
      case 2:
        for (const auto& [uid, job] : mirror_.jobs()) {
          if (const auto report = reports_.Poll(uid))
            operators_[i]->Hear(std::string(kNamespace) + "/" + job.name, *report);
        }
        return;
      default:
        operators_[i]->Work(static_cast<size_t>(dice_.Below(OperatorProcess::kWorkers)),
                            !scenario_.one_leads || i == leader_);
    }
    if (!operators_[i]->defect().empty()) invariants_.Break(operators_[i]->defect());
  } catch (const Crash&) {
    Note(operators_[i]->name() + " died");
    StartOperator(i);
  }
}

// A person with kubectl.
void Simulation::Meddle() {
  const std::string name = "job" + std::to_string(dice_.Below(2));
  switch (dice_.Below(6)) {
    case 0:
      return Edit(name, {{"suspend", true}});
    case 1:
      return Edit(name, {{"suspend", false}});
    case 2:
      if (scenario_.disruptions) HarmOnePod();
      return;
    case 3:  // a spec that is not accepted, and one that is
      return Edit(name, {{"sharedMemory", dice_.Chance(0.5) ? Json{{"sizeLimit", "much"}} : Json()}});
    case 4:
      if (!scenario_.quota) return;
      trouble_.max_pods = dice_.Chance(0.5) ? std::optional(dice_.Below(6)) : std::nullopt;
      return Note("a quota of " + std::to_string(trouble_.max_pods.value_or(-1)) + " pods");
    case 5:
      DeleteJob(name);
      if (dice_.Chance(0.7)) CreateJob(name);
      return;
  }
}

void Simulation::Edit(const std::string& name, const Json& spec) {
  Note("edit " + name + " " + spec.dump());
  api_.Patch(kube::kTrainingJobs, kNamespace, name, "", local::PatchType::kMerge, {{"spec", spec}}, {});
}

void Simulation::DeleteJob(const std::string& name) {
  const bool leaves_pods = dice_.Chance(0.2);
  Note("delete " + name + (leaves_pods ? " --cascade=orphan" : ""));
  api_.Delete(kube::kTrainingJobs, kNamespace, name, {.propagation = leaves_pods ? "Orphan" : ""});
}

// As the condition of the job that waits for them says.
void Simulation::DeleteOrphans() {
  for (const kube::Resource* resource : {&kube::kPods, &kube::kServices}) {
    const Json objects = api_.List(*resource, kNamespace, {}).body["items"];
    for (const Json& object : objects) {
      const Json& metadata = object["metadata"];
      if (metadata.contains("ownerReferences") || metadata.contains("deletionTimestamp")) continue;
      Note("delete " + resource->plural + " " + metadata["name"].get<std::string>());
      api_.Delete(*resource, kNamespace, metadata["name"], {});
    }
  }
}

void Simulation::HarmOnePod() {
  for (const auto& [uid, pod] : mirror_.pods()) {
    if (!dice_.Chance(0.3)) continue;
    const PodView harmed = pod;
    const bool force = dice_.Chance(0.3);
    Note(std::string(force ? "delete --force pod " : "delete pod ") + harmed.name);
    api_.Delete(kube::kPods, kNamespace, harmed.name,
                {.grace_seconds = force ? std::optional<int64_t>(0) : std::nullopt});
    return;
  }
}

void Simulation::Calm() {
  calm_ = true;
  Note("calm");
  trouble_ = {.level = 0, .interleave = 0.1};
  cluster_.Calm();
  std::vector<std::string> names;
  for (const auto& [uid, job] : mirror_.jobs()) names.push_back(job.name);
  for (const std::string& name : names) Edit(name, {{"suspend", false}, {"sharedMemory", nullptr}});
}

bool Simulation::AllEnded() const {
  return std::all_of(mirror_.jobs().begin(), mirror_.jobs().end(),
                     [](const auto& job) { return job.second.finished(); });
}

// Lets the last cleaning happen, then looks at what is left, and that nobody does anything any more.
std::string Simulation::CheckEnd() {
  std::string left = CheckWhatIsLeft();
  // A while longer than that: who has not seen yet that a pod is gone deletes it once more.
  for (int i = 0, clean = 0; i < kCleaningSteps && clean < kRestSteps; ++i) {
    Act();
    if (i % 100 == 99) left = CheckWhatIsLeft();
    clean = left.empty() ? clean + 1 : 0;
  }
  if (!invariants_.broken().empty()) return invariants_.broken();
  if (!left.empty()) return left;
  // An operator that began while pods were going has put off a look at them for as long as their deletion may take.
  clock_.Advance(kPutOffSeconds);
  for (int i = 0; i < kRestSteps; ++i) Act();
  const int64_t writes = Writes();
  for (int i = 0; i < kRestSteps; ++i) Act();
  return Writes() == writes ? "" : "a job at rest was written to";
}

std::string Simulation::CheckWhatIsLeft() const {
  for (const auto& [uid, job] : mirror_.jobs()) {
    if (!scenario_.doomed && !job.succeeded) return job.name + " ended as " + job.phase + ": " + job.failed_reason;
  }
  for (const auto& [uid, pod] : mirror_.pods()) {
    const auto job = mirror_.jobs().find(pod.owner_uid);
    if (job == mirror_.jobs().end()) return "pod " + pod.name + " outlived its job";
    const std::string& policy = job->second.clean_pod_policy;
    if (policy == "All") return "pod " + pod.name + " was not cleaned up";
    if (policy == "Running" && !pod.over()) return "pod " + pod.name + " outlived its job's end";
  }
  return "";
}

int64_t Simulation::Writes() const {
  int64_t writes = 0;
  for (const auto& each : operators_) writes += each->client().writes();
  return writes;
}

std::string Simulation::Phases() const {
  std::string text;
  const local::ApiResult jobs = api_.List(kube::kTrainingJobs, "", {});
  for (const Json& job : jobs.body["items"])
    text += job["metadata"]["name"].get<std::string>() + " " + job.value("status", Json()).dump() + "\n";
  return text;
}

void Simulation::Note(const std::string& text) {
  if (trace_) history_ << FormatMicroTime(clock_.Now()) << " " << text << "\n";
}

void Simulation::Trace() {
  mirror_.Listen(PodListener([this](const PodView* before, const PodView* after) {
    const PodView& pod = after ? *after : *before;
    std::string text = "  " + std::string(!after ? "gone " : !before ? "new " : "") + pod.name + " " + pod.phase;
    if (pod.end) text += " " + std::to_string(pod.end->code) + " " + pod.end->reason;
    Note(text + (pod.deleting ? " deleting" : "") + (pod.disrupted ? " disrupted" : ""));
  }));
  mirror_.Listen(JobListener([this](const JobView* before, const JobView* after) {
    const JobView& job = after ? *after : *before;
    std::string text = "  " +
                       std::string(!after    ? "gone "
                                   : !before ? "new "
                                             : "") +
                       job.name + " " + job.phase + " attempt " + std::to_string(job.attempt) + " restarts " +
                       std::to_string(job.charged) + " of " + std::to_string(job.total) + " durable " +
                       std::to_string(job.checkpoint_step);
    if (!job.culprit_pod.empty()) text += " failure " + job.culprit_pod + " " + job.culprit_reason;
    if (job.streak)
      text += " streak " + std::to_string(job.streak->count) + " at " +
              (job.streak->step ? std::to_string(*job.streak->step) : "?");
    Note(text + (job.failed ? " " + job.failed_reason : ""));
  }));
}

}  // namespace trainyard::sim
