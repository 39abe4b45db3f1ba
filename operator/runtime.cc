#include "operator/runtime.h"

#include <random>

#include "operator/api/labels.h"
#include "operator/metrics.h"

namespace trainyard {
namespace {

kube::Reflector::Options Watching(const std::string& ns, const std::string& selector) {
  return {.ns = ns,
          .label_selector = selector,
          .min_watch_seconds = 300,
          .max_watch_seconds = 600,
          .page_size = 500,
          .seed = std::random_device()()};
}

}  // namespace

Runtime::Runtime(kube::Client& client, const Clock& clock, const Logger& log, Options options)
    : client_(client),
      clock_(clock),
      log_(log),
      options_(std::move(options)),
      queue_(clock),
      jobs_(
          reconcile::JobFromApi, [](const reconcile::JobRecord&) { return std::string(); },
          [this](const std::string& key) { queue_.Add(key); }),
      pods_(
          reconcile::PodFromJson, [](const reconcile::PodRecord& pod) { return pod.JobKey(); },
          [this](const std::string& key) { queue_.Add(key); }),
      jobs_reflector_(client, clock, kube::kTrainingJobs, Watching(options_.ns, ""), jobs_),
      pods_reflector_(client, clock, kube::kPods, Watching(options_.ns, std::string(api::kLabelManaged) + "=true"),
                      pods_),
      events_(client, clock, options_.instance),
      poller_(jobs_, pods_, clock, options_.poll_seconds, [this](const std::string& key) { queue_.Add(key); }),
      reconciler_(client, clock, jobs_, pods_, poller_, events_, log,
                  {.progress_interval_seconds = options_.progress_interval_seconds, .parallel_requests = 16}),
      controller_(
          queue_, [this](const std::string& key) { return reconciler_.Reconcile(key); }, log) {}

Runtime::~Runtime() { Stop(); }

void Runtime::Start() {
  threads_.emplace_back([this] { Reflect(jobs_reflector_); });
  threads_.emplace_back([this] { Reflect(pods_reflector_); });
  // A decision on half a cache would create what is there already.
  threads_.emplace_back([this] {
    while (!stop_ && !Ready()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (stop_) return;
    controller_.Start(options_.workers);
    poller_.Start();
  });
}

void Runtime::Stop() {
  stop_ = true;
  wake_.NotifyAll();
  client_.Interrupt();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  controller_.Stop();
  poller_.Stop();
}

void Runtime::Reflect(kube::Reflector& reflector) {
  while (!stop_) {
    const double wait = reflector.Pump(stop_);
    if (wait <= 0 || stop_) continue;
    log_.Debug("watch is tried again", {{"resource", reflector.resource().plural}, {"seconds", std::to_string(wait)}});
    const MutexLock lock(mutex_);
    if (!stop_) wake_.WaitFor(mutex_, Seconds(wait));
  }
}

std::string Runtime::Metrics() const {
  return OperatorMetrics({.jobs = jobs_,
                          .pods = pods_,
                          .queue = queue_,
                          .controller = controller_.counters(),
                          .reflectors = {&jobs_reflector_, &pods_reflector_},
                          .now = clock_.Now()});
}

}  // namespace trainyard
