#include "operator/progress_poller.h"

#include <algorithm>
#include <random>
#include <set>

#include "common/json.h"
#include "operator/base/json_access.h"
#include "operator/net/fetch.h"
#include "operator/reconcile/policies.h"
#include "operator/reconcile/progress.h"
#include "operator/reconcile/worker_pod.h"

namespace trainyard {
namespace {

using json::Count, json::KnownCount, json::KnownNumber, json::Number;

// The latest moment that a time may be: the year 2255.
constexpr double kLastSecond = 9e9;
constexpr size_t kLongestPath = 1024;  // as spec.checkpoint.path

}  // namespace

std::optional<reconcile::Report> ReportFromStatus(const std::string& body, Time now) {
  const auto answer = ParseJson(body);
  reconcile::Report report;
  report.job_uid = json::Text(answer, "job_uid");
  if (report.job_uid.empty()) return std::nullopt;
  report.attempt = Count(answer, "attempt");
  api::Progress& progress = report.progress;
  progress.step = KnownCount(answer, "step");
  progress.total_steps = KnownCount(answer, "total_steps");
  if (progress.step && progress.total_steps.value_or(0) > 0) {
    const double done = static_cast<double>(*progress.step) / static_cast<double>(*progress.total_steps);
    progress.percent = static_cast<int64_t>(100 * std::min(1.0, done));
  }
  progress.samples_per_second = KnownNumber(answer, "samples_per_second");
  progress.eta_seconds = KnownCount(answer, "eta_seconds");
  progress.loss = KnownNumber(answer, "loss");
  progress.last_update = now;
  report.startup = reconcile::ReadStartup(json::Field(answer, "startup"));
  if (const double time = Number(answer, "last_progress_time"); time > 0 && time < kLastSecond)
    progress.last_progress = After(Time{}, time);
  if (const nlohmann::json& checkpoint = json::Field(answer, "checkpoint");
      json::Flag(checkpoint, "durable") && KnownCount(checkpoint, "step")) {
    report.checkpoint.step = Count(checkpoint, "step");
    report.checkpoint.bytes = KnownCount(checkpoint, "bytes");
    if (const double time = Number(checkpoint, "time"); time > 0 && time < kLastSecond)
      report.checkpoint.time = After(Time{}, time);
    // Anybody's image answers: what is no path that could be mounted is none.
    if (const std::string path = json::Text(checkpoint, "path"); path.starts_with('/') && path.size() <= kLongestPath)
      report.checkpoint.path = path;
  }
  return report;
}

ProgressPoller::ProgressPoller(const reconcile::JobStore& jobs, const reconcile::PodStore& pods, const Clock& clock,
                               Options options, std::function<void(const std::string&)> changed)
    : jobs_(jobs), pods_(pods), clock_(clock), options_(options), changed_(std::move(changed)) {}

void ProgressPoller::Start() {
  thread_ = std::thread([this] { Loop(); });
}

void ProgressPoller::Stop() {
  stop_.Set();
  if (thread_.joinable()) thread_.join();
}

std::optional<reconcile::Report> ProgressPoller::Get(const std::string& job_uid) const {
  const MutexLock lock(mutex_);
  const auto found = reports_.find(job_uid);
  return found == reports_.end() ? std::nullopt : std::optional(found->second);
}

void ProgressPoller::Loop() {
  // Many operators' rounds, or one's after each restart, shall not fall together.
  std::mt19937_64 random(std::random_device{}());
  std::uniform_real_distribution<double> part(0.8, 1.2);
  while (stop_.Sleep(options_.interval_seconds * part(random))) PollAll();
}

void ProgressPoller::PollAll() {
  std::set<std::string> alive;
  std::vector<net::FetchTarget> targets;
  std::vector<std::string> asked;  // the job of each target, by key
  for (const std::string& key : jobs_.Keys()) {
    const auto record = jobs_.Get(key);
    if (!record) continue;
    alive.insert(record->job.uid);
    if (reconcile::IsFinished(record->job.status)) continue;
    for (const reconcile::Pod& pod : pods_.Indexed(key)) {
      if (pod->owner_uid != record->job.uid || pod->rank != 0 || pod->attempt != record->job.status.attempt ||
          pod->ip.empty() || pod->end || pod->status_port == 0)
        continue;
      targets.push_back({pod->ip, pod->status_port, "/status"});
      asked.push_back(key);
    }
  }
  net::FetchAll(targets, {}, stop_, [&](size_t target, const Result<std::string>& body) {
    if (!body.ok()) return;
    if (const auto report = ReportFromStatus(*body, clock_.Now())) Keep(asked[target], *report);
  });
  const MutexLock lock(mutex_);
  std::erase_if(reports_, [&](const auto& entry) { return !alive.contains(entry.first); });
}

// An answer of another attempt than the job's newest is that of a pod that goes.
void ProgressPoller::Keep(const std::string& key, const reconcile::Report& report) {
  const auto record = jobs_.Get(key);
  if (!record || record->job.uid != report.job_uid || record->job.status.attempt != report.attempt) return;
  {
    const MutexLock lock(mutex_);
    reports_[report.job_uid] = report;
  }
  if (reconcile::IsNews(report, record->job.status, options_.progress_interval_seconds, clock_.Now())) changed_(key);
}

}  // namespace trainyard
