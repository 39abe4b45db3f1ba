#include "operator/local/local_command.h"

#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <random>
#include <thread>

#include "common/text.h"
#include "operator/api/job_file.h"
#include "operator/api/json.h"
#include "operator/api/labels.h"
#include "operator/api/validation.h"
#include "operator/base/exit_codes.h"
#include "operator/base/json_access.h"
#include "operator/kube/rest_client.h"
#include "operator/local/api/api_server.h"
#include "operator/local/api/journal.h"
#include "operator/local/live_view.h"
#include "operator/local/node/address_block.h"
#include "operator/local/node/agent.h"
#include "operator/local/node/limits.h"
#include "operator/local/rank_output.h"
#include "operator/local/state_dir.h"
#include "operator/local/submit.h"
#include "operator/metrics.h"
#include "operator/operator_endpoint.h"
#include "operator/reconcile/conditions.h"
#include "operator/reconcile/worker_pod.h"
#include "operator/runtime.h"
#include "operator/stop_signals.h"

namespace trainyard {
namespace {

using local::Json;

constexpr double kTick = 0.1, kKillSeconds = 5;

int Complain(const Status& status, int code) {
  std::fprintf(stderr, "trainyard-operator: %s\n", status.message().c_str());
  return code;
}

// The control plane of one machine: API, agent, operator. Built in this order, ended in the reverse.
class ControlPlane {
 public:
  ControlPlane(local::StateDir& state, const Logger& log)
      : state_(state),
        log_(log),
        api_(clock_, std::random_device()()),
        journal_(state.path()),
        agent_(api_, clock_, state.path(), addresses_.number(), log) {}

  // `api_only`: neither operator nor agent. `listen`: where the operator's metrics are served, if anywhere.
  Status Start(int port, bool api_only, const std::optional<ListenPlace>& listen) {
    if (Status status = journal_.Open(api_); !status.ok()) return status.With("--state-dir");
    Result<local::Certificate> certificate = local::MakeCertificate();
    if (!certificate.ok()) return certificate.status();
    const std::string token = local::RandomToken();
    server_ = std::make_unique<local::ApiServer>(
        api_, clock_, *certificate, token,
        [this](const Json& pod, const std::string& container) { return agent_.LogPath(pod, container); });
    if (Status status = server_->Start(port); !status.ok()) return status;
    kubeconfig_text_ = local::KubeconfigText(server_->port(), certificate->pem, token);
    if (Status status = state_.WriteSecret("kubeconfig", kubeconfig_text_); !status.ok())
      return status.With("--state-dir");
    if (api_only) return Status::Ok();
    Result<kube::Endpoint> endpoint = kube::ReadKubeconfig(kubeconfig());
    if (!endpoint.ok()) return endpoint.status();
    client_ =
        std::make_unique<kube::RestClient>(*endpoint, clock_, stop_, kube::Transport::Options{.metrics = &requests_});
    runtime_ = std::make_unique<Runtime>(
        *client_, *client_, clock_, log_, stop_,
        Runtime::Options{
            .ns = "", .instance = "local", .workers = 2, .progress_interval_seconds = 1, .poll_seconds = 0.5});
    if (listen) {
      auto served =
          ServeOperator(*listen, stop_, *runtime_, [this] { return ClientMetrics(no_limit_, requests_, true); });
      if (!served.ok()) return served.status();
      endpoint_ = std::move(*served);
    }
    agent_.Start();
    runtime_->Start();
    return Status::Ok();
  }

  // Ends pods in good order: the operator first, so that it does not replace them. `hurry` is asked at each look, and
  // ends it early.
  void Stop(const std::function<bool()>& hurry) {
    if (!runtime_) return Leave();  // with --api-only pods are objects, and stay
    runtime_->Stop();
    double grace = 0;
    const local::ApiResult pods = api_.List(kube::kPods, "", {});
    for (const Json& pod : pods.body["items"]) {
      if (!local::HasEnded(pod))
        grace = std::max(grace, json::Number(json::Field(pod, "spec"), "terminationGracePeriodSeconds", 30));
    }
    agent_.Drain();
    const Time deadline = After(clock_.Now(), grace + kKillSeconds);
    while (agent_.running() > 0 && clock_.Now() < deadline && !hurry()) std::this_thread::sleep_for(Seconds(kTick));
    Leave();
  }
  // Ends everything at once; nothing of pods that run is lost but the processes.
  void Leave() {
    endpoint_.reset();
    runtime_.reset();
    agent_.Stop();
    client_.reset();  // its open connections would hold the server up
    if (server_) server_->Stop();
    Save(true);
  }
  // What has to be done now and then: garbage, and a snapshot that is due.
  void Tend() {
    if (const uint64_t version = api_.version(); version != tended_) {
      api_.CollectGarbage();
      tended_ = version;
    }
    Save(false);
  }

  std::string kubeconfig() const { return (state_.path() / "kubeconfig").string(); }
  int port() const { return server_->port(); }
  local::MemoryApi& api() { return api_; }
  const local::Agent& agent() const { return agent_; }
  const SystemClock& clock() const { return clock_; }

 private:
  // Says once that the disk refuses, and once that it no longer does. Ends where the folder was removed and is another
  // program's now: both would write the same files.
  void Save(bool force) {
    const Result<bool> renewed = state_.Hold();
    if (renewed.status().Is(Code::kConflict) && StopSignals() == 0) std::raise(SIGTERM);
    const bool anew = renewed.ok() && *renewed;
    if (anew) log_.Warning("--state-dir was removed, and is made anew; what lay in it is gone");
    const Status status = renewed.ok() ? journal_.Save(force || anew) : renewed.status();
    if (anew) (void)state_.WriteSecret("kubeconfig", kubeconfig_text_);  // of a disk that refuses the journal tells
    if (status.message() == complaint_) return;
    complaint_ = status.message();
    if (status.ok()) {
      log_.Warning("the state is saved again");
    } else {
      log_.Error("the state is not saved; a restart would go on from an older one", {{"error", complaint_}});
    }
  }
  local::StateDir& state_;
  const Logger& log_;
  SystemClock clock_;
  local::MemoryApi api_;
  local::Journal journal_;
  local::AddressBlock addresses_;
  local::Agent agent_;
  std::unique_ptr<local::ApiServer> server_;
  StopFlag stop_;  // of the operator
  kube::RequestMetrics requests_;
  const kube::TokenBucket no_limit_{1, 1, clock_};  // nothing waits for it: so its metrics say
  std::unique_ptr<kube::RestClient> client_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<HttpEndpoint> endpoint_;
  std::string complaint_, kubeconfig_text_;
  uint64_t tended_ = 0;
};

// Worker 0 of the last attempt; null when it was cleaned up.
Json LastRankZero(ControlPlane& plane, const api::TrainingJob& job) {
  const local::ApiResult pods =
      plane.api().List(kube::kPods, job.ns,
                       {.label_selector = std::string(api::kLabelRank) + "=0," + api::kLabelJobUid + "=" + job.uid +
                                          "," + api::kLabelAttempt + "=" + std::to_string(job.status.attempt)});
  // Anyone can give a pod the labels.
  for (const Json& pod : json::List(pods.body, "items")) {
    if (reconcile::OwnedBy(pod, job.uid)) return pod;
  }
  return {};
}

// Where the container that trains has written to, or, before it began, the last init container; empty when none did.
std::filesystem::path TrainerLog(const ControlPlane& plane, const Json& pod) {
  std::error_code none;
  std::filesystem::path newest;
  for (const Json& init : json::List(json::Field(pod, "spec"), "initContainers")) {
    const std::filesystem::path path = plane.agent().LogPath(pod, json::Text(init, "name"));
    if (std::filesystem::exists(path, none)) newest = path;
  }
  const Json* trainer = api::TrainerContainer(pod);
  const std::filesystem::path own = trainer ? plane.agent().LogPath(pod, json::Text(*trainer, "name")) : "";
  return trainer && std::filesystem::exists(own, none) ? own : newest;
}

// A line of where something lies; none for what is nowhere.
void PrintPlace(const std::string& what, const std::filesystem::path& path) {
  if (!path.empty()) std::printf("%-12s %s\n", what.c_str(), path.c_str());
}

// Where on this machine the paths are that the log of `pod` (null: none) and the job file speak of.
void PrintPlaces(const ControlPlane& plane, const local::StateDir& state, const Json& pod) {
  if (const Json* trainer = api::TrainerContainer(pod)) {
    PrintPlace("log", TrainerLog(plane, pod));
    const auto mounts = local::PodFiles(state.path(), pod).Mounts(pod, *trainer);
    for (const local::Mount& mount : mounts.ok() ? *mounts : std::vector<local::Mount>()) {
      if (!mount.read_only) PrintPlace(mount.at, mount.source);
    }
  }
  PrintPlace("files", state.path());
  std::fflush(stdout);
}

// The folder with the logs of a pod that is gone, the last one of its name; empty when there is none.
std::filesystem::path LogsOf(const local::StateDir& state, const std::string& ns, const std::string& pod) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path last;
  for (fs::directory_iterator entry(state.path() / "pods", error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code unknown;
    const bool named = entry->path().filename().string().starts_with(ns + "_" + pod + "_");
    if (named && (last.empty() || fs::last_write_time(*entry, unknown) > fs::last_write_time(last, unknown)))
      last = entry->path();
  }
  return last;
}

// Of a job that failed: of the worker that it was for, unless that is rank 0 and told anyway.
void PrintCulpritsLog(ControlPlane& plane, const api::TrainingJob& job, const local::StateDir& state) {
  if (!reconcile::IsTrue(job.status, reconcile::kFailedCondition) || !job.status.last_failure) return;
  const std::string& name = job.status.last_failure->pod;
  const local::ApiResult pod = plane.api().Get(kube::kPods, job.ns, name);
  if (!pod.ok()) return PrintPlace(name, LogsOf(state, job.ns, name));
  if (name != api::PodName(job.name, job.status.attempt, 0)) PrintPlace(name, TrainerLog(plane, pod.body));
}

// Says that something in the file is not followed; `validate` says what and why.
void TellOfIgnored(const api::JobFile& file, local::LiveView& view) {
  for (const api::OtherObject& other : file.others) {
    if (other.kind != api::kClaimKind) view.Event("not made here: " + other.kind + " " + other.name);
  }
  const std::vector<std::string> fields = local::IgnoredFields(file.job);
  const auto count =
      std::count_if(fields.begin(), fields.end(), [](const std::string& line) { return !line.starts_with("image "); });
  if (count > 0)
    view.Event("ignored here: " + std::to_string(count) +
               " fields of the template; `trainyard-operator validate` names them");
}

// What is wrong with running the job here, beyond what is wrong with it anywhere.
std::vector<std::string> LocalProblems(const Json& job, bool served) {
  std::vector<std::string> problems = local::JobObstacles(job);
  const api::JobSpec spec = api::JobFromJson(job).spec;
  if (spec.suspend && !served) problems.emplace_back("spec.suspend: true, and without --serve nobody can resume it");
  if (!spec.managed_by.empty() && spec.managed_by != "trainyard.dev/operator")
    problems.push_back("spec.managedBy: " + spec.managed_by + " is not here, and the operator keeps its hands off");
  return problems;
}

// The job in the file, complete and checked; nothing when it cannot run, which it has said then.
std::optional<api::JobFile> ReadAndCheck(const LocalOptions& options) {
  Result<api::JobFile> file = api::ReadJobFile(options.file);
  if (!file.ok()) {
    Complain(file.status(), kExitInvalid);
    return std::nullopt;
  }
  const bool nameless = api::GenerateName(file->job);
  std::vector<std::string> problems = api::CheckJob(file->job);
  if (nameless)
    problems.emplace_back("metadata.generateName: `local` finds a job again by its name; allowed: metadata.name");
  if (problems.empty()) problems = LocalProblems(file->job, options.serve.has_value());
  for (const std::string& problem : problems)
    std::fprintf(stderr, "trainyard-operator: %s: %s\n", options.file.c_str(), problem.c_str());
  if (!problems.empty()) return std::nullopt;
  return std::move(*file);
}

// The job as the API has it now; without a uid when it is gone.
api::TrainingJob Saved(ControlPlane& plane, const Json& job) {
  return local::SavedJob(plane.api(), job["metadata"]["namespace"], job["metadata"]["name"]);
}

// Jobs of earlier runs on this state directory run as well as `job` (null: none).
void TellOfOthers(ControlPlane& plane, const Json& job, local::LiveView& view, const std::string& what) {
  const local::ApiResult all = plane.api().List(kube::kTrainingJobs, "", {});
  for (const Json& object : all.body["items"]) {
    const api::TrainingJob other = api::JobFromJson(object);
    const bool ours =
        !job.is_null() && other.name == job["metadata"]["name"] && other.ns == job["metadata"]["namespace"];
    if (!ours && !local::ExitCode(other)) view.Event(other.ns + "/" + other.name + " " + what);
  }
}

// After Ctrl-C: what it goes on from.
void SayWhereItStopped(ControlPlane& plane, const Json& job, const local::StateDir& state) {
  const api::TrainingJob saved = Saved(plane, job);
  std::printf("\nstopped; with --state-dir %s it %s\n", ForShell(state.path()).c_str(),
              saved.spec.checkpoint.volume.is_null() ? "begins again: it has no spec.checkpoint"
                                                     : "goes on from its newest checkpoint");
  PrintPlaces(plane, state, LastRankZero(plane, saved));
}

// What rank 0 of the attempt writes, below a line that says where the whole of it is.
class Output {
 public:
  // `began`: of this process. What a pod of an earlier one wrote has been shown.
  Output(ControlPlane& plane, local::LiveView& view, Time began)
      : plane_(plane),
        view_(view),
        began_(std::chrono::floor<std::chrono::seconds>(began)),
        lines_([this](const std::string& line) { Show(line); }) {}

  void Follow(const api::TrainingJob& job) {
    const Json pod = LastRankZero(plane_, job);
    if (pod.is_null() || ParseTime(json::Text(pod["metadata"], "creationTimestamp")) < began_) return;
    const std::filesystem::path path = TrainerLog(plane_, pod);
    std::error_code none;
    if (path != path_ && std::filesystem::exists(path, none)) {
      lines_.Finish();
      view_.Event("output of " + json::Text(pod["metadata"], "name") + ", also in " + path.string() + ":");
      path_ = path;
    }
    if (path == path_) lines_.Follow(path);
  }
  void Finish() { lines_.Finish(); }

 private:
  void Show(const std::string& line) {
    if (line.starts_with("step ")) return;  // the line of state says it
    view_.Event("  " + local::LiveView::Printable(line, local::kOutputWidth));
  }

  ControlPlane& plane_;
  local::LiveView& view_;
  const Time began_;  // as a pod's creation is said: to the second
  std::filesystem::path path_;
  local::RankOutput lines_;
};

// How a job ended that is there no more, which it says: with a TTL of 0 it is deleted as soon as it is judged. `since`:
// a version of the API at which it was there.
int CodeOfDeleted(ControlPlane& plane, const Json& submitted, uint64_t since, local::LiveView& view) {
  std::vector<kube::WatchEvent> events;
  plane.api().Next(kube::kTrainingJobs, submitted["metadata"]["namespace"], local::Selector(), since, 0, events);
  api::TrainingJob last;
  for (const kube::WatchEvent& event : events) {
    if (json::Text(json::Field(event.object, "metadata"), "name") == submitted["metadata"]["name"])
      last = api::JobFromJson(event.object);
  }
  const std::optional<int> code = local::ExitCode(last);
  if (code) view.Event(local::LiveView::Summary(last).substr(1) + "deleted      by spec.ttlSecondsAfterFinished");
  if (!code) view.Event("the job was deleted");
  return code.value_or(kExitStopped);
}

// Shows the job until it ends or a signal comes; returns its exit code, if it has ended.
std::optional<int> Follow(ControlPlane& plane, const Json& submitted, local::LiveView& view, Output& output) {
  const std::string ns = submitted["metadata"]["namespace"], name = submitted["metadata"]["name"];
  uint64_t events_seen = 0, seen = plane.api().version();  // it was there then
  std::optional<int> code;
  while (!code && StopSignals() == 0) {
    const uint64_t now = plane.api().version();
    const local::ApiResult object = plane.api().Get(kube::kTrainingJobs, ns, name);
    if (!object.ok()) {
      return CodeOfDeleted(plane, submitted, seen, view);
    }
    seen = now;
    const api::TrainingJob job = api::JobFromJson(object.body);
    std::vector<kube::WatchEvent> events;
    const bool known = plane.api().Next(kube::kEvents, ns, local::Selector(), events_seen, 0, events);
    if (!known) events_seen = plane.api().version();
    for (const kube::WatchEvent& event : events) {
      const std::string reason = json::Text(event.object, "reason");
      if (reason == "NodeAvoided") continue;  // there is no other
      if (event.type == "ADDED" && json::Text(json::Field(event.object, "regarding"), "name") == name)
        view.Event(reason + ": " + local::LiveView::Printable(json::Text(event.object, "note"), local::kMessageWidth));
    }
    if (job.status.observed_generation == job.generation) code = local::ExitCode(job);
    output.Follow(job);
    if (code) output.Finish();
    view.State(job, plane.clock().Now());
    plane.Tend();
    if (!code) std::this_thread::sleep_for(Seconds(kTick));
  }
  return code;
}

void Summarize(ControlPlane& plane, const Json& submitted, const local::StateDir& state) {
  const api::TrainingJob job = Saved(plane, submitted);
  const Json pod = LastRankZero(plane, job);
  if (!job.uid.empty()) std::fputs(local::LiveView::Summary(job).c_str(), stdout);
  PrintCulpritsLog(plane, job, state);
  PrintPlaces(plane, state, pod);
}

void WaitForSignal(ControlPlane& plane) {
  while (StopSignals() == 0) {
    plane.Tend();
    std::this_thread::sleep_for(Seconds(kTick));
  }
}

}  // namespace

int RunLocal(const LocalOptions& options) {
  const std::optional<api::JobFile> file = options.file.empty() ? api::JobFile() : ReadAndCheck(options);
  if (!file) return kExitInvalid;
  const Json& job = file->job;
  std::optional<ListenPlace> listen;
  if (!options.listen.empty()) {
    const Result<ListenPlace> place = ParseListen(options.listen);
    if (!place.ok()) return Complain(place.status(), kExitInvalid);
    listen = *place;
  }
  Result<local::StateDir> state = local::StateDir::Open(options.state_dir);
  if (!state.ok()) return Complain(state.status(), kExitInvalid);
  CatchStopSignals();
  const Logger log(STDERR_FILENO, Logger::Form::kText, LogLevel::kWarning);
  ControlPlane plane(*state, log);
  const Time began = plane.clock().Now();
  if (const Status status = plane.Start(options.serve.value_or(0), options.api_only, listen); !status.ok())
    return Complain(status, status.Is(Code::kUnavailable) ? kExitNetwork
                            : status.Is(Code::kInvalid)   ? kExitInvalid
                                                          : kExitInternal);
  local::LiveView view(STDERR_FILENO, options.quiet);
  if (options.state_dir.empty()) {
    struct statfs where {};
    const bool in_memory = statfs(state->path().c_str(), &where) == 0 && where.f_type == TMPFS_MAGIC;
    view.Event("files in " + state->path().string() +
               (in_memory ? ": this machine's memory, checkpoints too; --state-dir puts them elsewhere" : ""));
  }
  if (options.serve)
    view.Event("API on https://127.0.0.1:" + std::to_string(plane.port()) +
               "; export KUBECONFIG=" + ForShell(plane.kubeconfig()));
  TellOfIgnored(*file, view);
  TellOfOthers(plane, job, view, "of an earlier run goes on as well");
  std::optional<int> code;
  Output output(plane, view, began);
  if (!job.is_null()) {
    const local::SubmitOptions how{.say = [&](const std::string& line) { view.Event(line); },
                                   .stopped = [] { return StopSignals() > 0; },
                                   .operated = !options.api_only};
    if (const Status status = local::Submit(plane.api(), job, how); !status.ok()) {
      plane.Leave();
      return Complain(status, StopSignals() > 0 ? kExitStopped : kExitInvalid);
    }
    code = Follow(plane, job, view, output);
    view.Finish();
    if (code && !options.quiet) Summarize(plane, job, *state);
  }
  if (job.is_null() || (code && options.keep)) WaitForSignal(plane);
  if (code) TellOfOthers(plane, job, view, "is stopped; the next start with this --state-dir goes on with it");
  if (!code && StopSignals() > 0) view.Event("stopping: workers get their grace for a checkpoint; again to kill them");
  const api::TrainingJob stopped = code || job.is_null() ? api::TrainingJob() : Saved(plane, job);
  plane.Stop([&] {  // and rank 0 says what it saves
    if (!stopped.uid.empty()) output.Follow(stopped);
    return StopSignals() > 1;
  });
  if (!stopped.uid.empty()) output.Follow(stopped);
  output.Finish();
  if (!code && !job.is_null() && !options.quiet) SayWhereItStopped(plane, job, *state);
  return code.value_or(kExitStopped);
}

}  // namespace trainyard
