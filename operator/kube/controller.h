// Workers that take keys from a queue and reconcile them.
#ifndef TRAINYARD_OPERATOR_KUBE_CONTROLLER_H_
#define TRAINYARD_OPERATOR_KUBE_CONTROLLER_H_

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "operator/base/histogram.h"
#include "operator/base/log.h"
#include "operator/base/status.h"
#include "operator/kube/work_queue.h"

namespace trainyard::kube {

// Not ok: the key comes again with backoff, after requeue_after_seconds at the latest. Ok: its failures are forgotten,
// and it comes again after that time, if any.
struct ReconcileResult {
  Status status;
  std::optional<double> requeue_after_seconds;
};

enum class Outcome { kOk, kConflict, kError };
inline constexpr size_t kOutcomes = 3;

// Takes one result back to the queue and logs a failure, once. A conflict is the way of things, and so is a
// stop: they are not logged.
Outcome Settle(WorkQueue& queue, const std::string& key, const ReconcileResult& result, const Logger& log);

inline constexpr std::array kReconcileBounds{0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0};

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
  // The seconds that reconciles took which ended so.
  HistogramReading seconds(Outcome outcome) const { return seconds_[static_cast<size_t>(outcome)].Read(); }

 private:
  void Work();
  ReconcileResult Guarded(const std::string& key);

  WorkQueue& queue_;
  const ReconcileFunction reconcile_;
  const Logger& log_;
  std::array<Histogram<kReconcileBounds>, kOutcomes> seconds_;
  std::vector<std::thread> threads_;
};

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_CONTROLLER_H_
