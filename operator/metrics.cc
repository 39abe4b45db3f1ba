#include "operator/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "common/build_info.h"
#include "common/process_start.h"
#include "operator/api/training_job.h"
#include "operator/reconcile/conditions.h"
#include "operator/reconcile/record_bytes.h"

namespace trainyard {
namespace {

using prometheus::MetricType;
using Label = std::pair<std::string, std::string>;

class Families {
 public:
  void Add(const std::string& name, MetricType type, const std::string& help) {
    families_.push_back({name, help, type, {}});
  }
  void Value(double value, const std::vector<Label>& labels = {}) {
    prometheus::ClientMetric metric;
    for (const auto& [key, text] : labels) metric.label.push_back({key, text});
    (families_.back().type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
    families_.back().metric.push_back(std::move(metric));
  }
  void Value(int64_t value, const std::vector<Label>& labels = {}) { Value(static_cast<double>(value), labels); }
  void Value(const HistogramReading& reading, const std::vector<Label>& labels = {}) {
    prometheus::ClientMetric metric;
    for (const auto& [key, text] : labels) metric.label.push_back({key, text});
    metric.histogram.sample_count = static_cast<uint64_t>(reading.count());
    metric.histogram.sample_sum = reading.sum;
    for (size_t i = 0; i < reading.counts.size(); ++i)
      metric.histogram.bucket.push_back(
          {static_cast<uint64_t>(reading.counts[i]),
           i < reading.bounds.size() ? reading.bounds[i] : std::numeric_limits<double>::infinity()});
    families_.back().metric.push_back(std::move(metric));
  }
  std::string Text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  std::vector<prometheus::MetricFamily> families_;
};

// The status of a job that another controller manages may say anything.
std::string LabelOfPhase(const std::string& phase) {
  static const std::set<std::string> known = {api::kPending,    api::kStarting,   api::kRunning,
                                              api::kRestarting, api::kSuspending, api::kSuspended,
                                              api::kInvalid,    api::kSucceeded,  api::kFailed};
  return phase.empty() ? "New" : known.contains(phase) ? phase : "Other";
}

void Jobs(const reconcile::JobStore& jobs, const reconcile::JobMetrics& metrics, Families& families) {
  std::map<std::string, int64_t> phases;
  for (const std::string& key : jobs.Keys()) {
    const auto record = jobs.Get(key);
    if (record) ++phases[LabelOfPhase(record->job.status.phase)];
  }
  families.Add("trainyard_jobs", MetricType::Gauge, "TrainingJobs that exist, by phase.");
  for (const auto& [phase, count] : phases) families.Value(count, {{"phase", phase}});
  families.Add("trainyard_job_restarts_total", MetricType::Counter,
               "Restarts that this operator decided, by the culprit's reason.");
  for (const auto& [key, count] : metrics.restarts())
    families.Value(count, {{"reason", key.first}, {"charged", key.second ? "true" : "false"}});
  families.Add("trainyard_job_failures_total", MetricType::Counter, "Jobs that failed for good, by the reason.");
  for (const auto& [reason, count] : metrics.failures()) families.Value(count, {{"reason", reason}});
  families.Add("trainyard_job_startup_seconds", MetricType::Histogram,
               "Seconds that stages of attempts' starts took, one behind the other.");
  for (const auto& [stage, reading] : metrics.startup()) families.Value(reading, {{"stage", stage}});
  families.Add("trainyard_job_seconds_total", MetricType::Counter, "Where the jobs' time went, in seconds by cause.");
  for (const auto& [cause, seconds] : metrics.goodput()) families.Value(seconds, {{"cause", cause}});
}

// Of the attempt that has waited longest. Who stands in a queue, such as Kueue's, counts for nothing.
void Starts(const reconcile::JobStore& jobs, Time now, Families& families) {
  double scheduling = 0, starting = 0;
  for (const std::string& key : jobs.Keys()) {
    const auto record = jobs.Get(key);
    if (!record || record->job.deleting) continue;
    const api::JobStatus& status = record->job.status;
    const bool begins =
        status.phase == api::kPending || status.phase == api::kStarting || status.phase == api::kRestarting;
    if (!begins || !status.attempt_time) continue;
    // Over, and the others' ends are awaited: its nodes are those of an attempt that ran.
    if (status.last_failure && status.last_failure->attempt == status.attempt) continue;
    const api::Condition* scheduled = reconcile::FindCondition(status, reconcile::kScheduledCondition);
    if (scheduled && scheduled->status == "True")
      starting = std::max(starting, SecondsBetween(scheduled->last_transition_time.value_or(now), now));
    else if (!scheduled || scheduled->reason != "SchedulingGated")
      scheduling = std::max(scheduling, SecondsBetween(*status.attempt_time, now));
  }
  families.Add("trainyard_job_start_wait_seconds", MetricType::Gauge,
               "Seconds since which an attempt waits for nodes, or with nodes for its workers; of the oldest one.");
  families.Value(scheduling, {{"stage", "scheduling"}});
  families.Value(starting, {{"stage", "starting"}});
}

void Work(const kube::WorkQueue& queue, const kube::Controller& controller, Instant now, Families& families) {
  families.Add("trainyard_reconcile_seconds", MetricType::Histogram, "Seconds that reconciles took, by outcome.");
  families.Value(controller.seconds(kube::Outcome::kOk), {{"outcome", "ok"}});
  families.Value(controller.seconds(kube::Outcome::kConflict), {{"outcome", "conflict"}});
  families.Value(controller.seconds(kube::Outcome::kError), {{"outcome", "error"}});
  families.Add("trainyard_queue_depth", MetricType::Gauge, "Keys that wait for a worker.");
  families.Value(static_cast<int64_t>(queue.depth()));
  families.Add("trainyard_queue_age_seconds", MetricType::Gauge,
               "Seconds that the key which has waited longest has waited.");
  const std::optional<Instant> since = queue.WaitingSince();
  families.Value(since ? SecondsBetween(*since, now) : 0.0);
  families.Add("trainyard_queue_wait_seconds", MetricType::Histogram,
               "Seconds from when a key was due to when a worker took it.");
  families.Value(queue.waits());
  families.Add("trainyard_queue_retries_total", MetricType::Counter, "Keys that came again after a failure.");
  families.Value(queue.retries());
}

template <class Records>
int64_t CachedBytes(const Records& records) {
  int64_t bytes = 0;
  for (const std::string& key : records.Keys()) {
    if (const auto record = records.Get(key)) bytes += reconcile::BytesOf(*record);
  }
  return bytes;
}

void Cached(const reconcile::Caches& caches, Families& families) {
  families.Add("trainyard_cached_objects", MetricType::Gauge, "Objects in the caches.");
  families.Value(static_cast<int64_t>(caches.jobs().size()), {{"resource", "trainingjobs"}});
  families.Value(static_cast<int64_t>(caches.pods().size()), {{"resource", "pods"}});
  families.Add("trainyard_cached_bytes", MetricType::Gauge, "What is kept of them, estimated.");
  families.Value(CachedBytes(caches.jobs()), {{"resource", "trainingjobs"}});
  families.Value(CachedBytes(caches.pods()), {{"resource", "pods"}});
  families.Add("trainyard_objects_skipped_total", MetricType::Counter, "Objects that could not be read.");
  families.Value(caches.jobs().skips(), {{"resource", "trainingjobs"}});
  families.Value(caches.pods().skips(), {{"resource", "pods"}});
}

void Watches(const reconcile::Caches& caches, Instant now, Families& families) {
  const std::tuple<const char*, const char*, std::atomic<int64_t> kube::ReflectorCounters::*> counters[] = {
      {"trainyard_watch_lists_total", "Lists that the caches asked for.", &kube::ReflectorCounters::lists},
      {"trainyard_watch_starts_total", "Watches that were begun.", &kube::ReflectorCounters::watches},
      {"trainyard_watch_gone_total", "Answers 410: the server had forgotten where we were.",
       &kube::ReflectorCounters::gone},
      {"trainyard_watch_errors_total", "Lists and watches that failed.", &kube::ReflectorCounters::errors}};
  for (const auto& [name, help, member] : counters) {
    families.Add(name, MetricType::Counter, help);
    for (const kube::Reflector* reflector : caches.reflectors())
      families.Value((reflector->counters().*member).load(), {{"resource", reflector->resource().plural}});
  }
  families.Add("trainyard_watch_idle_seconds", MetricType::Gauge, "Seconds since the server last said anything.");
  for (const kube::Reflector* reflector : caches.reflectors()) {
    const int64_t heard = reflector->counters().last_activity_us.load();
    if (heard == 0) continue;  // never; how long that is, trainyard_watch_failing_seconds says
    const Instant last{std::chrono::microseconds(heard)};
    families.Value(SecondsBetween(last, now), {{"resource", reflector->resource().plural}});
  }
  families.Add("trainyard_watch_failing_seconds", MetricType::Gauge,
               "Seconds since which a watch fails; 0: it does not.");
  for (const kube::Reflector* reflector : caches.reflectors()) {
    const std::optional<kube::Trouble> trouble = reflector->trouble();
    families.Value(trouble ? SecondsBetween(trouble->since, now) : 0.0, {{"resource", reflector->resource().plural}});
  }
}

}  // namespace

std::string OperatorMetrics(const MeteredOperator& parts, const Clock& clock) {
  const Instant now = clock.Steady();
  Families families;
  families.Add("trainyard_build_info", MetricType::Gauge, "Always 1; version and commit are labels.");
  families.Value(1.0, {{"version", Build().version}, {"commit", Build().commit}});
  families.Add("trainyard_start_time_seconds", MetricType::Gauge,
               "When the process began, in seconds since the epoch.");
  if (const std::optional<double> start = ProcessStart()) families.Value(*start);
  Jobs(parts.caches.jobs(), parts.jobs, families);
  Starts(parts.caches.jobs(), clock.Now(), families);
  Work(parts.queue, parts.controller, now, families);
  Watches(parts.caches, now, families);
  Cached(parts.caches, families);
  return families.Text();
}

std::string ClientMetrics(const kube::TokenBucket& bucket, const kube::RequestMetrics& requests, bool leads) {
  const kube::TokenBucket::Counters counters = bucket.counters();
  Families families;
  families.Add("trainyard_request_seconds", MetricType::Histogram,
               "Seconds of requests to the API server, by verb and by the answer's code; of watches until they began.");
  requests.Visit([&](const char* verb, const char* code, const HistogramReading& seconds) {
    families.Value(seconds, {{"verb", verb}, {"code", code}});
  });
  families.Add("trainyard_requests_limited_total", MetricType::Counter, "Requests that waited for our own limit.");
  families.Value(counters.waited);
  families.Add("trainyard_limiter_wait_seconds_total", MetricType::Counter, "Seconds that they waited, all together.");
  families.Value(counters.seconds);
  families.Add("trainyard_leader", MetricType::Gauge, "Whether this operator works (1) or stands by (0).");
  families.Value(leads ? 1.0 : 0.0);
  return families.Text();
}

}  // namespace trainyard
