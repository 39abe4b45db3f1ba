#include "operator/kube/controller.h"

namespace trainyard::kube {

Outcome Settle(WorkQueue& queue, const std::string& key, const ReconcileResult& result, const Logger& log) {
  Outcome outcome = Outcome::kOk;
  if (!result.status.ok()) {
    outcome = result.status.Is(Code::kConflict) ? Outcome::kConflict : Outcome::kError;
    if (outcome == Outcome::kError && !result.status.Is(Code::kStopped))
      log.Warning("reconcile failed; it is tried again", {{"job", key}, {"error", result.status.ToString()}});
    queue.AddFailed(key);
  } else {
    queue.Forget(key);
  }
  if (result.requeue_after_seconds) queue.AddAfter(key, *result.requeue_after_seconds);
  queue.Done(key);
  return outcome;
}

void Controller::Start(int workers) {
  threads_.reserve(static_cast<size_t>(workers));
  for (int i = 0; i < workers; ++i) threads_.emplace_back([this] { Work(); });
}

void Controller::Stop() {
  queue_.ShutDown();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

// Whatever an object holds may cost its own key a retry, but not the others their operator.
ReconcileResult Controller::Guarded(const std::string& key) {
  try {
    return reconcile_(key);
  } catch (const std::exception& error) {
    return {Status(Code::kInternal, std::string("a defect of the operator: ") + error.what()), {}};
  }
}

void Controller::Work() {
  while (const std::optional<std::string> key = queue_.Get()) {
    const Instant start = SteadyNow();
    const ReconcileResult result = Guarded(*key);
    const double seconds = SecondsBetween(start, SteadyNow());
    seconds_[static_cast<size_t>(Settle(queue_, *key, result, log_))].Observe(seconds);
  }
}

}  // namespace trainyard::kube
