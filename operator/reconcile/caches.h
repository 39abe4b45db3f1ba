// The operator's view of the API: jobs and pods, each kept by a reflector.
#ifndef TRAINYARD_OPERATOR_RECONCILE_CACHES_H_
#define TRAINYARD_OPERATOR_RECONCILE_CACHES_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <string>

#include "operator/kube/reflector.h"
#include "operator/reconcile/observe.h"

namespace trainyard::reconcile {

// Pods come and change by the thousand: a job is looked at so long after the first change that it has not seen. A look
// goes over all of its pods, so it waits for the more changes the more of them there are: 0.1 s, and for a job of a
// thousand half a second.
inline constexpr double PodsSettleSeconds(size_t pods) {
  return std::min(0.1 + 0.0004 * static_cast<double>(pods), 1.0);
}

class Caches {
 public:
  // To look at a job, so many seconds from now.
  using Changed = std::function<void(const std::string& job_key, double in_seconds)>;
  using Listed = std::function<void(const std::string& job_key)>;

  // `ns` empty: all namespaces. `seed`: of the reflectors' jitter. `changed` hears of every job that changes, at once,
  // or whose pods do, in PodsSettleSeconds; `skipped`, if any, of an object that cannot be read; `listed`, if any, in
  // `changed`'s place of what a whole list brought. `client` and `clock` must outlive it.
  Caches(kube::Client& client, const Clock& clock, const std::string& ns, uint64_t seed, const Changed& changed,
         const kube::SkippedFunction& skipped = {}, const Listed& listed = {});

  // Thread-safe.
  const JobStore& jobs() const { return jobs_; }
  const PodStore& pods() const { return pods_; }
  // Both have had a whole list: a decision before that would create what is there already.
  bool synced() const { return jobs_reflector_.synced() && pods_reflector_.synced(); }
  // How often the jobs' resource versions went back (kube::Reflector::rewinds).
  int64_t job_rewinds() const { return jobs_reflector_.rewinds(); }

  // One thread each pumps them.
  std::array<kube::Reflector*, 2> reflectors() { return {&jobs_reflector_, &pods_reflector_}; }
  std::array<const kube::Reflector*, 2> reflectors() const { return {&jobs_reflector_, &pods_reflector_}; }

 private:
  JobStore jobs_;
  TextPool texts_;  // of the pods; used by their reflector's thread alone
  PodStore pods_;
  kube::Reflector jobs_reflector_, pods_reflector_;
};

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_CACHES_H_
