// The operator, assembled: caches, queue, reconciler, poller, and their threads.
#ifndef TRAINYARD_OPERATOR_RUNTIME_H_
#define TRAINYARD_OPERATOR_RUNTIME_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "operator/kube/controller.h"
#include "operator/kube/reflector.h"
#include "operator/progress_poller.h"
#include "operator/reconcile/reconciler.h"

namespace trainyard {

class Runtime {
 public:
  struct Options {
    std::string ns;  // watch only this namespace; empty: all
    std::string instance = "trainyard-operator";
    int workers = 2;
    double progress_interval_seconds = 10;
    double poll_seconds = 5;
    double resync_seconds = 36000;     // every job is looked at again, whatever was missed
    std::function<bool()> leads = {};  // the workers start once it says so; empty: at once
  };
  // `events`: the client for events, which must not repeat what is refused: none is worth a worker's time. `stop` is
  // what the clients' requests end with; Stop() sets it. All references must outlive it.
  Runtime(kube::Client& client, kube::Client& events, const Clock& clock, const Logger& log, StopFlag& stop,
          Options options);
  ~Runtime();

  // Starts the caches, and the workers once the caches are whole and this operator leads. Returns at once.
  void Start();
  // Ends all threads, and what they wait for; the jobs and their pods stay as they are.
  void Stop();
  // Why this operator is not ready: the caches have not had their first lists, or a watch has failed for ten
  // seconds. Empty: it is. Thread-safe.
  std::string Unready() const;

  // The metrics of the operator in the Prometheus text format. Thread-safe.
  std::string Metrics() const;

 private:
  void Reflect(kube::Reflector& reflector);
  void AddAll();
  // Starts the workers once the caches are whole, and tells of watches that fail.
  void Supervise();

  const Clock& clock_;
  const Logger& log_;
  const Options options_;
  kube::WorkQueue queue_;
  // Until then nobody takes a key out, and the queue would keep those of all jobs that ever were.
  std::atomic<bool> works_{false};
  reconcile::Caches caches_;
  kube::EventRecorder events_;
  ProgressPoller poller_;
  reconcile::Reconciler reconciler_;
  kube::Controller controller_;
  StopFlag& stop_;
  std::vector<std::thread> threads_;
};

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_RUNTIME_H_
