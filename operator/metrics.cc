#include "operator/metrics.h"

#include <map>
#include <sstream>

namespace trainyard {
namespace {

class Text {
 public:
  void Family(const char* name, const char* type, const char* help) {
    out_ << "# HELP " << name << ' ' << help << "\n# TYPE " << name << ' ' << type << '\n';
  }
  void Value(const std::string& name, double value, const std::string& labels = "") {
    out_ << name;
    if (!labels.empty()) out_ << '{' << labels << '}';
    out_ << ' ' << value << '\n';
  }
  void Single(const char* name, const char* type, const char* help, double value) {
    Family(name, type, help);
    Value(name, value);
  }
  std::string str() const { return out_.str(); }

 private:
  std::ostringstream out_;
};

double D(int64_t value) { return static_cast<double>(value); }

void Jobs(const MetricSources& sources, Text& text) {
  std::map<std::string, int> phases;
  int64_t restarts = 0, charged = 0;
  for (const std::string& key : sources.jobs.Keys()) {
    const auto record = sources.jobs.Get(key);
    if (!record) continue;
    ++phases[record->job.status.phase.empty() ? "New" : record->job.status.phase];
    restarts += record->job.status.restarts.total;
    charged += record->job.status.restarts.charged;
  }
  text.Family("trainyard_jobs", "gauge", "TrainingJobs by phase.");
  for (const auto& [phase, count] : phases) text.Value("trainyard_jobs", count, "phase=\"" + phase + "\"");
  text.Family("trainyard_job_restarts", "gauge", "Restarts of the jobs that exist.");
  text.Value("trainyard_job_restarts", D(charged), "charged=\"true\"");
  text.Value("trainyard_job_restarts", D(restarts - charged), "charged=\"false\"");
}

void Watches(const MetricSources& sources, Text& text) {
  const std::pair<const char*, std::atomic<int64_t> kube::ReflectorCounters::*> counters[] = {
      {"trainyard_watch_lists_total", &kube::ReflectorCounters::lists},
      {"trainyard_watch_starts_total", &kube::ReflectorCounters::watches},
      {"trainyard_watch_gone_total", &kube::ReflectorCounters::gone},
      {"trainyard_watch_errors_total", &kube::ReflectorCounters::errors}};
  for (const auto& [name, member] : counters) {
    text.Family(name, "counter", "Lists, watches, answers 410 and failures of the caches.");
    for (const kube::Reflector* reflector : sources.reflectors)
      text.Value(name, D((reflector->counters().*member).load()), "resource=\"" + reflector->resource().plural + "\"");
  }
  text.Family("trainyard_watch_idle_seconds", "gauge", "Seconds since the server last said anything.");
  for (const kube::Reflector* reflector : sources.reflectors) {
    const Time last{std::chrono::microseconds(reflector->counters().last_activity_us.load())};
    text.Value("trainyard_watch_idle_seconds", SecondsBetween(last, sources.now),
               "resource=\"" + reflector->resource().plural + "\"");
  }
}

}  // namespace

std::string OperatorMetrics(const MetricSources& sources) {
  Text text;
  text.Family("trainyard_build_info", "gauge", "The version, as a label.");
  text.Value("trainyard_build_info", 1, "version=\"0.1.0\"");
  Jobs(sources, text);
  text.Family("trainyard_reconciles_total", "counter", "Reconciles by outcome.");
  text.Value("trainyard_reconciles_total", D(sources.controller.succeeded), "outcome=\"ok\"");
  text.Value("trainyard_reconciles_total", D(sources.controller.failed), "outcome=\"error\"");
  text.Value("trainyard_reconciles_total", D(sources.controller.conflicts), "outcome=\"conflict\"");
  text.Single("trainyard_reconcile_seconds_total", "counter", "Seconds in reconciles.",
              D(sources.controller.microseconds) / 1e6);
  text.Single("trainyard_queue_depth", "gauge", "Keys that wait.", static_cast<double>(sources.queue.depth()));
  text.Single("trainyard_queue_retries_total", "counter", "Keys that came again after a failure.",
              D(sources.queue.retries()));
  text.Family("trainyard_cached_objects", "gauge", "Objects in the caches.");
  text.Value("trainyard_cached_objects", static_cast<double>(sources.jobs.size()), "resource=\"trainingjobs\"");
  text.Value("trainyard_cached_objects", static_cast<double>(sources.pods.size()), "resource=\"pods\"");
  Watches(sources, text);
  return text.str();
}

}  // namespace trainyard
