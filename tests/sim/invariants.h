// What must hold at every change of the API, whoever made it.
#ifndef TRAINYARD_TESTS_SIM_INVARIANTS_H_
#define TRAINYARD_TESTS_SIM_INVARIANTS_H_

#include <map>
#include <set>
#include <string>

#include "tests/sim/operator_process.h"
#include "tests/sim/training.h"

namespace trainyard::sim {

class Invariants {
 public:
  // `operators`: how many act at once. Of two, one may act on what was true a while ago: then the fence of the
  // checkpoints keeps the older attempt from committing, and that is what is checked.
  Invariants(Mirror& mirror, const Training& training, const Clock& clock, size_t operators);

  // An operator's request is at the server, from `basis` on it is the one that writes; null: it is done.
  void Writing(const Basis* basis) { writer_ = basis; }
  // An operator is about to send it.
  void Sent(const std::string& instance, const char* verb, const kube::Resource& resource, const std::string& name,
            const Json* object);
  // An operator process is gone, and what it knew.
  void Forget(const std::string& instance) { confirmed_.erase(instance); }
  // Looks at what no change of the API tells: the processes.
  void LookAtProcesses();

  // What broke first; empty: nothing.
  const std::string& broken() const { return broken_; }
  void Break(const std::string& what);

 private:
  void PodChanged(const PodView* before, const PodView* after);
  void PodCreated(const PodView& pod);
  void LookForEarlier(const PodView& pod);
  void JobChanged(const JobView* before, const JobView* after);
  void TimeChanged(const JobView& before, const JobView& after);
  bool alone() const { return operators_ == 1; }

  const Mirror& mirror_;
  const Training& training_;
  const Clock& clock_;
  const size_t operators_;
  const Basis* writer_ = nullptr;
  size_t refused_ = 0;  // of the fence's refusals, those that were looked at
  std::string broken_;
  std::set<std::string> suspended_;                       // jobs that ever were, by uid
  std::map<std::string, uint64_t> created_;               // pods, by uid: the version they came with
  std::set<std::pair<std::string, int64_t>> have_begun_;  // attempts that ever had a pod, by their job's uid
  // When each operator last asked the API for a job, by instance and job.
  std::map<std::string, std::map<std::string, Time>> confirmed_;
};

}  // namespace trainyard::sim

#endif  // TRAINYARD_TESTS_SIM_INVARIANTS_H_
