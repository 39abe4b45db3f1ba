// Workers that take keys from a queue and reconcile them.
#ifndef TRAINYARD_OPERATOR_KUBE_CONTROLLER_H_
#define TRAINYARD_OPERATOR_KUBE_CONTROLLER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "operator/base/log.h"
#include "operator/base/status.h"
#include "operator/kube/work_queue.h"

namespace trainyard::kube {

// Not ok: the key comes again with backoff, and requeue_after_seconds is ignored. Ok: its failures are
// forgotten, and it comes again after that time, if any.
struct ReconcileResult {
  Status status;
  std::optional<double> requeue_after_seconds;
};

struct ControllerCounters {
  std::atomic<int64_t> succeeded{0}, failed{0}, conflicts{0};
  std::atomic<int64_t> microseconds{0};  // in reconciles, all together
};

// Takes one result back to the queue and logs a failure, once. A conflict is the way of things, and so is a
// stop: they are not logged.
void Settle(WorkQueue& queue, const std::string& key, const ReconcileResult& result, const Logger& log,
            ControllerCounters& counters);

class Controller {
 public:
  using ReconcileFunction = std::function<ReconcileResult(const std::string& key)>;
  // `queue`, `log` and what `reconcile` uses must outlive it.
  Controller(WorkQueue& queue, ReconcileFunction reconcile, const Logger& log)
      : queue_(queue), reconcile_(std::move(reconcile)), log_(log) {}
  ~Controller() { Stop(); }

  void Start(int workers);
  // Shuts the queue down and waits for the workers.
  void Stop();
  const ControllerCounters& counters() const { return counters_; }

 private:
  void Work();
  ReconcileResult Guarded(const std::string& key);

  WorkQueue& queue_;
  const ReconcileFunction reconcile_;
  const Logger& log_;
  ControllerCounters counters_;
  std::vector<std::thread> threads_;
};

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_CONTROLLER_H_
