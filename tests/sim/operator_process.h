// One operator process: the real queue, reflectors, stores and reconciler, and all that a crash destroys. Its
// reconciles are tasks that hand over before any of their requests, so that others go on in between.
#ifndef TRAINYARD_TESTS_SIM_OPERATOR_PROCESS_H_
#define TRAINYARD_TESTS_SIM_OPERATOR_PROCESS_H_

#include <array>
#include <memory>
#include <string>

#include "operator/kube/controller.h"
#include "operator/reconcile/reconciler.h"
#include "tests/sim/troubled_client.h"

namespace trainyard::sim {

class OperatorProcess {
 public:
  // Reconciles that are in flight at once.
  static constexpr size_t kWorkers = 2;

  OperatorProcess(std::string name, local::MemoryApi& api, const Mirror& mirror, VirtualClock& clock, Dice& dice,
                  const Trouble& trouble, const reconcile::ReportSource& reports);

  // One watch or list of one cache, when it is due. Throws Crash.
  void Pump(size_t which);
  // Lets a worker go on until it hands over; with `leads` an idle one may take a key. Throws Crash.
  void Work(size_t which, bool leads);
  // Rank 0 answered: the job is looked at when that is news, as the poller sees it.
  void Hear(const std::string& key, const reconcile::Report& report);

  const std::string& name() const { return name_; }
  TroubledClient& client() { return client_; }
  // What the reconcile whose request is made is based on.
  const Basis& basis() const { return workers_[running_].basis; }
  // Set when the code under test threw: it never may.
  const std::string& defect() const { return defect_; }

 private:
  struct Worker {
    std::unique_ptr<Task> task;
    bool idle = true;
    Basis basis;
  };
  void Pause();
  void Loop(Worker& worker);
  bool Frozen() const { return clock_.Now() < frozen_until_; }

  static constexpr size_t kNobody = kWorkers;
  const std::string name_;
  VirtualClock& clock_;
  Dice& dice_;
  const Trouble& trouble_;
  TroubledClient client_;
  kube::WorkQueue queue_;
  reconcile::Caches caches_;
  kube::EventRecorder events_;
  Logger log_;
  reconcile::Reconciler reconciler_;
  kube::StopFlag stop_;
  std::array<Time, 2> due_{};  // of each cache's next list or watch
  Time frozen_until_{};
  std::string defect_;
  size_t running_ = kNobody;
  std::array<Worker, kWorkers + 1> workers_;  // the last stands for nobody; ended before all else
};

}  // namespace trainyard::sim

#endif  // TRAINYARD_TESTS_SIM_OPERATOR_PROCESS_H_
