// The operator, assembled: caches, queue, reconciler, poller, and their threads.
#ifndef TRAINYARD_OPERATOR_RUNTIME_H_
#define TRAINYARD_OPERATOR_RUNTIME_H_

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
  };
  // All references must outlive it.
  Runtime(kube::Client& client, const Clock& clock, const Logger& log, Options options);
  ~Runtime();

  // Starts the caches, and the workers once the caches are whole. Returns at once.
  void Start();
  // Ends all threads; the jobs and their pods stay as they are.
  void Stop();
  // The caches have had their first lists. Thread-safe.
  bool Ready() const { return caches_.synced(); }

  // The metrics of the operator in the Prometheus text format. Thread-safe.
  std::string Metrics() const;

 private:
  void Reflect(kube::Reflector& reflector);

  kube::Client& client_;
  const Clock& clock_;
  const Logger& log_;
  const Options options_;
  kube::WorkQueue queue_;
  reconcile::Caches caches_;
  kube::EventRecorder events_;
  ProgressPoller poller_;
  reconcile::Reconciler reconciler_;
  kube::Controller controller_;
  kube::StopFlag stop_{false};
  Mutex mutex_;
  CondVar wake_;
  std::vector<std::thread> threads_;
};

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_RUNTIME_H_
