#include "operator/runtime.h"

#include <random>
#include <utility>

#include "operator/metrics.h"
#include "operator/watch_trouble.h"

namespace trainyard {
Runtime::Runtime(kube::Client& client, kube::Client& events, const Clock& clock, const Logger& log, StopFlag& stop,
                 Options options)
    : clock_(clock),
      log_(log),
      options_(std::move(options)),
      queue_(clock),
      caches_(
          client, clock, options_.ns, std::random_device()(),
          [this](const std::string& key, double in) {
            if (works_) queue_.AddAfter(key, in);
          },
          [this](const std::string& key, const std::string& why) {
            log_.Error("an object cannot be read, and is passed over: a defect of the operator",
                       {{"object", key}, {"error", why}});
          },
          [this](const std::string& key) {
            if (works_) queue_.AddBehind(key);
          }),
      events_(events, clock, options_.instance),
      poller_(
          caches_.jobs(), caches_.pods(), clock,
          {.interval_seconds = options_.poll_seconds, .progress_interval_seconds = options_.progress_interval_seconds},
          [this](const std::string& key) { queue_.Add(key); }),
      reconciler_(client, clock, caches_, poller_, events_, log,
                  {.progress_interval_seconds = options_.progress_interval_seconds, .parallel_requests = 16}),
      controller_(
          queue_, [this](const std::string& key) { return reconciler_.Reconcile(key); }, log),
      stop_(stop) {}

Runtime::~Runtime() { Stop(); }

void Runtime::Start() {
  for (kube::Reflector* reflector : caches_.reflectors()) {
    threads_.emplace_back([this, reflector] { Reflect(*reflector); });
  }
  threads_.emplace_back([this] { Supervise(); });
}

void Runtime::Stop() {
  stop_.Set();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  controller_.Stop();
  poller_.Stop();
}

void Runtime::Reflect(kube::Reflector& reflector) {
  while (!stop_) stop_.Sleep(reflector.Pump(stop_));
}

void Runtime::AddAll() {
  for (const std::string& key : caches_.jobs().Keys()) queue_.AddBehind(key);
}

void Runtime::Supervise() {
  std::vector<std::pair<const kube::Reflector*, TroubleLog>> logs;
  for (const kube::Reflector* reflector : caches_.reflectors())
    logs.emplace_back(reflector, TroubleLog(reflector->resource(), log_));
  bool started = false;
  Instant resync = clock_.Steady();
  // Until the caches are whole it is looked at often: that is the time from start to first reconcile. After a second
  // it is no start any more, but an API server that does not answer.
  const Instant soon = After(clock_.Steady(), 1);
  const auto pause = [&] { return started ? 1 : caches_.synced() || clock_.Steady() >= soon ? 0.1 : 0.002; };
  while (stop_.Sleep(pause())) {
    // A decision on half a cache would create what is there already. Who waits for the lead has whole ones.
    if (!started && caches_.synced() && (!options_.leads || options_.leads())) {
      works_ = true;
      AddAll();
      controller_.Start(options_.workers);
      poller_.Start();
      started = true;
      resync = After(clock_.Steady(), options_.resync_seconds);
    }
    if (started && clock_.Steady() >= resync) {
      AddAll();
      resync = After(clock_.Steady(), options_.resync_seconds);
    }
    for (auto& [reflector, log] : logs) {
      log.Look(reflector->trouble(), clock_.Steady());
      log.LookAtList(reflector->synced(), clock_.Steady());
    }
  }
}

std::string Runtime::Unready() const {
  for (const kube::Reflector* reflector : caches_.reflectors()) {
    const std::optional<kube::Trouble> trouble = reflector->trouble();
    if (!trouble) continue;
    if (!reflector->synced() || SecondsBetween(trouble->since, clock_.Steady()) >= kUnreadySeconds)
      return Explain(*trouble, reflector->resource());
  }
  return caches_.synced() ? "" : "the caches have not had their first lists";
}

std::string Runtime::Metrics() const {
  return OperatorMetrics({.caches = caches_, .queue = queue_, .controller = controller_, .jobs = reconciler_.metrics()},
                         clock_);
}

}  // namespace trainyard
