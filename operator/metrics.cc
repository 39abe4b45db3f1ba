#include "operator/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <map>

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
  std::string Text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  std::vector<prometheus::MetricFamily> families_;
};

void Jobs(const reconcile::JobStore& jobs, Families& families) {
  std::map<std::string, int64_t> phases;
  int64_t restarts = 0, charged = 0;
  for (const std::string& key : jobs.Keys()) {
    const auto record = jobs.Get(key);
    if (!record) continue;
    ++phases[record->job.status.phase.empty() ? "New" : record->job.status.phase];
    restarts += record->job.status.restarts.total;
    charged += record->job.status.restarts.charged;
  }
  families.Add("trainyard_jobs", MetricType::Gauge, "TrainingJobs by phase.");
  for (const auto& [phase, count] : phases) families.Value(count, {{"phase", phase}});
  families.Add("trainyard_job_restarts", MetricType::Gauge, "Restarts of the jobs that exist.");
  families.Value(charged, {{"charged", "true"}});
  families.Value(restarts - charged, {{"charged", "false"}});
}

void Work(const kube::WorkQueue& queue, const kube::ControllerCounters& controller, Families& families) {
  families.Add("trainyard_reconciles_total", MetricType::Counter, "Reconciles by outcome.");
  families.Value(controller.succeeded, {{"outcome", "ok"}});
  families.Value(controller.failed, {{"outcome", "error"}});
  families.Value(controller.conflicts, {{"outcome", "conflict"}});
  families.Add("trainyard_reconcile_seconds_total", MetricType::Counter, "Seconds in reconciles.");
  families.Value(static_cast<double>(controller.microseconds) / 1e6);
  families.Add("trainyard_queue_depth", MetricType::Gauge, "Keys that wait.");
  families.Value(static_cast<int64_t>(queue.depth()));
  families.Add("trainyard_queue_retries_total", MetricType::Counter, "Keys that came again after a failure.");
  families.Value(queue.retries());
}

void Watches(const reconcile::Caches& caches, Instant now, Families& families) {
  families.Add("trainyard_cached_objects", MetricType::Gauge, "Objects in the caches.");
  families.Value(static_cast<int64_t>(caches.jobs().size()), {{"resource", "trainingjobs"}});
  families.Value(static_cast<int64_t>(caches.pods().size()), {{"resource", "pods"}});
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
    const Instant last{std::chrono::microseconds(reflector->counters().last_activity_us.load())};
    families.Value(SecondsBetween(last, now), {{"resource", reflector->resource().plural}});
  }
  families.Add("trainyard_watch_failing_seconds", MetricType::Gauge,
               "Seconds since which a watch fails; 0: it does not.");
  for (const kube::Reflector* reflector : caches.reflectors()) {
    const std::optional<kube::Trouble> trouble = reflector->trouble();
    families.Value(trouble ? SecondsBetween(trouble->since, now) : 0.0, {{"resource", reflector->resource().plural}});
  }
  families.Add("trainyard_objects_skipped_total", MetricType::Counter, "Objects that could not be read.");
  families.Value(caches.jobs().skips(), {{"resource", "trainingjobs"}});
  families.Value(caches.pods().skips(), {{"resource", "pods"}});
}

}  // namespace

std::string OperatorMetrics(const reconcile::Caches& caches, const kube::WorkQueue& queue,
                            const kube::ControllerCounters& controller, Instant now) {
  Families families;
  families.Add("trainyard_build_info", MetricType::Gauge, "The version, as a label.");
  families.Value(1.0, {{"version", "0.1.0"}});
  Jobs(caches.jobs(), families);
  Work(queue, controller, families);
  Watches(caches, now, families);
  return families.Text();
}

std::string ClientMetrics(const kube::TokenBucket& bucket, bool leads) {
  const kube::TokenBucket::Counters counters = bucket.counters();
  Families families;
  families.Add("trainyard_requests_total", MetricType::Counter, "Requests to the API server.");
  families.Value(counters.taken);
  families.Add("trainyard_requests_limited_total", MetricType::Counter, "Requests that waited for our own limit.");
  families.Value(counters.waited);
  families.Add("trainyard_limiter_wait_seconds_total", MetricType::Counter, "Seconds that they waited, all together.");
  families.Value(counters.seconds);
  families.Add("trainyard_leader", MetricType::Gauge, "Whether this operator works (1) or stands by (0).");
  families.Value(leads ? 1.0 : 0.0);
  return families.Text();
}

}  // namespace trainyard
