#include "operator/runtime.h"

#include <random>

#include "operator/metrics.h"

namespace trainyard {
Runtime::Runtime(kube::Client& client, const Clock& clock, const Logger& log, Options options)
    : client_(client),
      clock_(clock),
      log_(log),
      options_(std::move(options)),
      queue_(clock),
      caches_(client, clock, options_.ns, std::random_device()(), [this](const std::string& key) { queue_.Add(key); }),
      events_(client, clock, options_.instance),
      poller_(caches_.jobs(), caches_.pods(), clock, options_.poll_seconds,
              [this](const std::string& key) { queue_.Add(key); }),
      reconciler_(client, clock, caches_, poller_, events_, log,
                  {.progress_interval_seconds = options_.progress_interval_seconds, .parallel_requests = 16}),
      controller_(
          queue_, [this](const std::string& key) { return reconciler_.Reconcile(key); }, log) {}

Runtime::~Runtime() { Stop(); }

void Runtime::Start() {
  for (kube::Reflector* reflector : caches_.reflectors()) {
    threads_.emplace_back([this, reflector] { Reflect(*reflector); });
  }
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

std::string Runtime::Metrics() const { return OperatorMetrics(caches_, queue_, controller_.counters(), clock_.Now()); }

}  // namespace trainyard
