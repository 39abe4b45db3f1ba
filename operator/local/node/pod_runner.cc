#include "operator/local/node/pod_runner.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "operator/base/file.h"
#include "operator/base/json_access.h"
#include "operator/local/node/limits.h"
#include "operator/local/node/session.h"

namespace trainyard::local {
namespace {

// What the kubelet allows a termination message, and takes of the log in its place.
constexpr size_t kMaxMessage = 4096, kMaxLogTail = 2048;
// Of pods that ask for none, in seconds.
constexpr double kDefaultGrace = 30;

// The containers write these files: what else they put in their place is as good as nothing, and what they go on
// writing is not waited for.
std::string ReadTail(const std::filesystem::path& path, size_t bytes) {
  const RegularFile file(path);
  const uint64_t size = file.size();
  return file.Read(size - std::min<uint64_t>(size, bytes), bytes);
}

std::string ReadHead(const std::filesystem::path& path, size_t bytes) { return RegularFile(path).Read(0, bytes); }

// Output may hold any bytes; JSON may not.
std::string Valid(const std::string& text) {
  const std::string dumped = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  return Json::parse(dumped).get<std::string>();
}

ProcessSpec Specify(const Json& container, const ContainerEnvironment& environment, const ContainerView& view,
                    const std::filesystem::path& log) {
  ProcessSpec spec{
      .command = {}, .environment = {}, .directory = view.directory, .output = log.string(), .mounts = view.mounts};
  for (const char* part : {"command", "args"}) {
    for (const Json& word : json::List(container, part)) {
      if (word.is_string()) spec.command.push_back(Expand(word.get<std::string>(), environment.variables));
    }
  }
  for (const auto& [name, value] : environment.variables) {
    std::string variable = name;
    variable += '=';
    variable += value;
    spec.environment.push_back(std::move(variable));
  }
  return spec;
}

Json ConditionObject(const char* type, bool value, const std::string& reason = "") {
  Json condition = {{"type", type}, {"status", value ? "True" : "False"}};
  if (!reason.empty()) condition["reason"] = reason;
  return condition;
}

// Each with the time since which it says what it says: `before`'s, where that said the same.
void Date(Json& conditions, const Json& before, Time now) {
  for (Json& condition : conditions) {
    if (condition.contains("lastTransitionTime")) continue;
    condition["lastTransitionTime"] = FormatTime(now);
    for (const Json& old : before) {
      const std::string since = json::Text(old, "lastTransitionTime");
      if (!since.empty() && json::Field(old, "type") == condition["type"] &&
          json::Field(old, "status") == condition["status"])
        condition["lastTransitionTime"] = since;
    }
  }
}

}  // namespace

PodRunner::PodRunner(const NodeFacts& node, Json pod, const Clock& clock)
    : pod_(std::move(pod)), clock_(clock), node_(node), files_(node.state, pod_), created_(clock.Now()) {
  ListContainers();
}

PodRunner::~PodRunner() {
  Kill();
  for (std::vector<Container>* list : {&init_, &main_}) {
    for (Container& container : *list) {
      if (!container.process || !container.terminated.is_null()) continue;
      // SIGKILL cannot be refused: the wait is short.
      for (int i = 0; !container.process->Poll() && i < 500; ++i) usleep(10000);
      // What it has put into sessions of its own goes with it also where nobody waits for its end.
      KillContainer(container.process->pid(), files_.Mark(container.name));
    }
  }
}

void PodRunner::ListContainers() {
  for (const Json& spec : json::List(pod_["spec"], "initContainers"))
    init_.push_back({.name = json::Text(spec, "name")});
  for (const Json& spec : json::List(pod_["spec"], "containers")) main_.push_back({.name = json::Text(spec, "name")});
  size_t i = 0;
  for (Container& container : init_) container.spec = &pod_["spec"]["initContainers"][i++];
  i = 0;
  for (Container& container : main_) container.spec = &pod_["spec"]["containers"][i++];
}

void PodRunner::Update(const Json& pod) {
  // The spec is what it was when the pod was made; containers point into it.
  const bool annotated = json::Field(pod_["metadata"], "annotations") != json::Field(pod["metadata"], "annotations");
  pod_["metadata"] = pod["metadata"];
  if (json::Field(pod, "status").is_object()) pod_["status"] = pod["status"];
  if (annotated && prepared_ && !main_.empty()) {
    if (const Status status = files_.Refresh(pod_); !status.ok()) main_[0].waiting_message = status.message();
  }
  if (pod["metadata"].contains("deletionTimestamp")) {
    // What cannot be read is no reason to hurry: the grace counts from now on then.
    const double grace = json::Number(pod["metadata"], "deletionGracePeriodSeconds", kDefaultGrace);
    const Time deadline =
        ParseTime(json::Text(pod["metadata"], "deletionTimestamp")).value_or(After(clock_.Now(), grace));
    kill_at_ = std::min(kill_at_.value_or(Time::max()), deadline);
  }
}

void PodRunner::Advance(const Resolver& resolver) {
  for (std::vector<Container>* list : {&init_, &main_}) {
    for (Container& container : *list) Collect(container);
  }
  if (kill_at_) return BeginDeletion();
  if (!prepared_) {
    if (const Status status = Prepare(); !status.ok()) {
      for (Container& container : main_) Misconfigured(container, status);
      return;
    }
    prepared_ = true;
  }
  for (Container& container : init_) {
    if (container.terminated.is_null()) {
      if (!container.process) StartContainer(container, resolver);
      return;
    }
    if (container.terminated["exitCode"] != 0) return;  // restartPolicy is Never
  }
  for (Container& container : main_) {
    if (!container.process && container.terminated.is_null()) StartContainer(container, resolver);
  }
}

Status PodRunner::Prepare() const {
  std::string text;
  for (const std::string& obstacle : Obstacles(pod_)) text += (text.empty() ? "" : "; ") + obstacle;
  return text.empty() ? files_.Prepare(pod_) : Status(Code::kInvalid, text);
}

// With what the pod asks for no other attempt would fare better: 126 is among the codes that fail a job. With a
// full disk one may.
void PodRunner::Misconfigured(Container& container, const Status& why) {
  const bool permanent = why.Is(Code::kInvalid);
  Refuse(container, permanent ? 126 : 128, permanent ? "CreateContainerConfigError" : "CreateContainerError",
         why.message());
}

void PodRunner::StartContainer(Container& container, const Resolver& resolver) {
  Result<std::vector<Mount>> mounts = files_.Mounts(pod_, *container.spec);
  if (!mounts.ok()) return Misconfigured(container, mounts.status());
  const LentFolders lent{.messages = files_.root().string(), .programs = node_.programs, .staging = files_.Staging()};
  const Result<ContainerView> view =
      MakeView(std::move(*mounts), json::Text(*container.spec, "workingDir"), lent, node_.namespaces);
  if (!view.ok()) return Misconfigured(container, view.status());
  const Result<ContainerEnvironment> environment = MakeEnvironment(pod_, *container.spec, *view, resolver);
  if (!environment.ok()) return Misconfigured(container, environment.status());
  if (!environment->waiting_for.empty()) {
    container.waiting_reason = "WaitingForName";
    container.waiting_message = "there is no pod behind " + environment->waiting_for + " yet";
    return;
  }
  ProcessSpec spec = Specify(*container.spec, *environment, *view, files_.Log(container.name));
  spec.environment.push_back(files_.Mark(container.name));
  Result<Process> process = Process::Start(spec);
  if (!process.ok())
    return Refuse(container, process.status().Is(Code::kNotFound) ? 127 : 126, "StartError",
                  process.status().message());
  container.process = *process;
  container.started = clock_.Now();
  container.log_times.emplace(files_.Log(container.name));
  RecordProcesses();
}

void PodRunner::Refuse(Container& container, int exit_code, const std::string& reason, const std::string& message) {
  const std::string now = FormatTime(clock_.Now());
  container.terminated = {
      {"exitCode", exit_code}, {"reason", reason}, {"message", message}, {"startedAt", now}, {"finishedAt", now}};
  container.finished = clock_.Now();
}

void PodRunner::Collect(Container& container) {
  if (!container.process || !container.terminated.is_null()) return;
  container.log_times->Note(clock_.Now());
  const std::optional<ProcessEnd> end = container.process->Poll();
  if (!end) return;
  container.finished = clock_.Now();
  container.log_times->NoteEnd(*container.finished);
  // What it left behind goes with it, as a container's processes do.
  KillContainer(container.process->pid(), files_.Mark(container.name));
  container.terminated = {{"exitCode", end->exit_code},
                          {"reason", end->exit_code == 0 ? "Completed" : "Error"},
                          {"startedAt", FormatTime(*container.started)},
                          {"finishedAt", FormatTime(*container.finished)}};
  if (end->signal != 0) container.terminated["signal"] = end->signal;
  if (const std::string text = TerminationText(container, end->exit_code != 0); !text.empty())
    container.terminated["message"] = text;
}

std::string PodRunner::TerminationText(const Container& container, bool failed) const {
  const std::string own = ReadHead(files_.Message(container.name), kMaxMessage);
  if (!own.empty() || !failed || json::Text(*container.spec, "terminationMessagePolicy") != "FallbackToLogsOnError")
    return Valid(own);
  return Valid(ReadTail(files_.Log(container.name), kMaxLogTail));
}

void PodRunner::Drain(Time kill_at) {
  if (!draining_) draining_ = clock_.Now();
  kill_at_ = std::min(kill_at_.value_or(Time::max()), kill_at);
}

void PodRunner::BeginDeletion() {
  for (std::vector<Container>* list : {&init_, &main_}) {
    for (Container& container : *list) {
      if (container.process && container.terminated.is_null() && !stopping_) container.process->Signal(SIGTERM);
    }
  }
  stopping_ = true;
  if (clock_.Now() >= *kill_at_) Kill();
}

void PodRunner::Kill() {
  for (std::vector<Container>* list : {&init_, &main_}) {
    for (Container& container : *list) {
      if (container.process && container.terminated.is_null()) container.process->Signal(SIGKILL);
    }
  }
}

bool PodRunner::Ended() const {
  const auto running = [](const Container& c) { return c.process && c.terminated.is_null(); };
  if (std::any_of(init_.begin(), init_.end(), running) || std::any_of(main_.begin(), main_.end(), running))
    return false;
  if (stopping_) return true;
  const bool init_failed = std::any_of(init_.begin(), init_.end(), [](const Container& c) {
    return !c.terminated.is_null() && c.terminated["exitCode"] != 0;
  });
  return init_failed ||
         std::all_of(main_.begin(), main_.end(), [](const Container& c) { return !c.terminated.is_null(); });
}

Json PodRunner::ContainerStatus(const Container& container, bool init) const {
  Json state;
  const bool running = container.process && container.terminated.is_null();
  if (!container.terminated.is_null()) {
    state = {{"terminated", container.terminated}};
  } else if (running) {
    state = {{"running", {{"startedAt", FormatTime(*container.started)}}}};
  } else {
    state = {{"waiting", {{"reason", container.waiting_reason}}}};
    if (!container.waiting_message.empty()) state["waiting"]["message"] = container.waiting_message;
  }
  // An init container is ready once it is done.
  const bool done = init && !container.terminated.is_null() && container.terminated["exitCode"] == 0;
  return {{"name", container.name}, {"image", json::Text(*container.spec, "image")},
          {"imageID", ""},          {"ready", running || done},
          {"started", running},     {"restartCount", 0},
          {"state", state}};
}

Json PodRunner::PodStatus() const {
  Json status = json::Field(pod_, "status");
  if (!status.is_object()) status = Json::object();
  const bool initialized = std::all_of(init_.begin(), init_.end(), [](const Container& c) {
    return !c.terminated.is_null() && c.terminated["exitCode"] == 0;
  });
  const bool all_run =
      std::all_of(main_.begin(), main_.end(), [](const Container& c) { return c.process && c.terminated.is_null(); });
  std::string phase = std::any_of(main_.begin(), main_.end(), [](const Container& c) { return c.process.has_value(); })
                          ? "Running"
                          : "Pending";
  if (Ended()) {
    // A node that goes down calls no pod a success that it had to end.
    const bool good = !draining_ && initialized && std::all_of(main_.begin(), main_.end(), [](const Container& c) {
      return !c.terminated.is_null() && c.terminated["exitCode"] == 0;
    });
    phase = good ? "Succeeded" : "Failed";
  }
  status["phase"] = phase;
  Json conditions = Json::array({ConditionObject("PodScheduled", true), ConditionObject("Initialized", initialized),
                                 ConditionObject("ContainersReady", all_run, all_run ? "" : "ContainersNotReady"),
                                 ConditionObject("Ready", all_run, all_run ? "" : "ContainersNotReady")});
  if (draining_) {
    Json disruption = ConditionObject("DisruptionTarget", true, "LocalStopped");
    disruption["message"] = "trainyard-operator local was stopped, and its workers with it";
    disruption["lastTransitionTime"] = FormatTime(*draining_);
    conditions.push_back(std::move(disruption));
  } else {
    for (const Json& other : json::List(status, "conditions")) {
      if (json::Text(other, "type") == "DisruptionTarget") conditions.push_back(other);
    }
  }
  Date(conditions, json::List(status, "conditions"), clock_.Now());
  status["conditions"] = std::move(conditions);
  for (const auto& [key, list] : {std::pair{"initContainerStatuses", &init_}, {"containerStatuses", &main_}}) {
    if (list->empty()) continue;
    status[key] = Json::array();
    for (const Container& container : *list) status[key].push_back(ContainerStatus(container, list == &init_));
  }
  return status;
}

// For the next life of this program, which ends what this one left behind.
void PodRunner::RecordProcesses() const {
  std::string lines;
  for (const std::vector<Container>* list : {&init_, &main_}) {
    for (const Container& container : *list) {
      if (!container.process || !container.terminated.is_null()) continue;
      if (const auto start = StartTime(container.process->pid()))
        lines += std::to_string(container.process->pid()) + " " + *start + " " + BootId() + "\n";
    }
  }
  // A disk that is full costs no pod its life: there is another trace of its processes (EndProcesses of agent.h).
  (void)WriteWhole(files_.root() / "processes", lines, 0644, false);
}

}  // namespace trainyard::local
