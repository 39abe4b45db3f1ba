// Keys that wait for a worker.
//
//   - Fair: keys come out by turns of their namespaces, and of one in the order in which they went in.
//   - What happens now goes before what was listed: a key of AddBehind comes when no key of Add waits, and in any case
//     after ten of those. A key of both is one of Add.
//   - Stingy: a key that waits is not added twice, and one that is being worked on is added again only
//     when it is done.
//   - Delayed: AddAfter makes a key due later; of several times the earliest counts.
//   - Backed off: AddFailed waits 5 ms x 2^n, at most 1000 s, n the failures since Forget.
//   - After ShutDown nothing is added, and Get returns nothing.
// Source: the contract of client-go's util/workqueue; controller-runtime's priority queue for AddBehind.
#ifndef TRAINYARD_OPERATOR_KUBE_WORK_QUEUE_H_
#define TRAINYARD_OPERATOR_KUBE_WORK_QUEUE_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "operator/base/clock.h"
#include "operator/base/histogram.h"
#include "operator/base/mutex.h"
#include "operator/kube/due_times.h"
#include "operator/kube/fair_order.h"

namespace trainyard::kube {

inline constexpr std::array kQueueBounds{0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0};

// Thread-safe.
class WorkQueue {
 public:
  explicit WorkQueue(const Clock& clock) : clock_(clock) {}

  void Add(const std::string& key);
  void AddBehind(const std::string& key);
  void AddAfter(const std::string& key, double seconds);
  void AddFailed(const std::string& key);
  void Forget(const std::string& key);

  // The next key, marked as being worked on; Done must follow. TryGet: nothing when none is due now.
  // Get waits; nothing means shut down.
  std::optional<std::string> TryGet();
  std::optional<std::string> Get();
  void Done(const std::string& key);
  void ShutDown();

  // When the next delayed key is due; nothing when none waits.
  std::optional<Instant> NextDue() const;
  size_t depth() const;
  int64_t retries() const;
  // Since when the key that has waited longest has waited; nothing when none does.
  std::optional<Instant> WaitingSince() const;
  // How long keys waited, from when they were due to when a worker took them.
  HistogramReading waits() const { return waits_.Read(); }

 private:
  struct Wait {
    Instant since;
    bool behind;
  };
  void AddLocked(const std::string& key, bool behind = false) REQUIRES_LOCK(mutex_);
  // False: it waits already, and as near to the front as is asked for.
  bool Enqueue(const std::string& key, Wait wait) REQUIRES_LOCK(mutex_);
  void MoveDue() REQUIRES_LOCK(mutex_);
  void Append(const std::string& key, bool behind) REQUIRES_LOCK(mutex_);
  // Nothing: none waits. No front of behind_ is of a key that has come forward.
  std::optional<std::string> TakeNext() REQUIRES_LOCK(mutex_);
  void DropStale() REQUIRES_LOCK(mutex_);
  std::optional<std::string> Pop() REQUIRES_LOCK(mutex_);
  // Until a key may be there, or ShutDown.
  void WaitForKey() REQUIRES_LOCK(mutex_);
  // One of those that wait, if there is one, looks for a key.
  void WakeOne() REQUIRES_LOCK(mutex_);

  const Clock& clock_;
  mutable Mutex mutex_;
  // Of those that wait in Get one wakes when the next delayed key is due, the timekeeper; the others when they are
  // called. If all did, a key would wake each of them.
  CondVar called_, sooner_;
  bool timekeeper_ GUARDED_BY(mutex_) = false;
  int others_ GUARDED_BY(mutex_) = 0;                     // how many wait to be called
  int calls_ GUARDED_BY(mutex_) = 0;                      // how many of those have been, and do not know yet
  FairOrder order_ GUARDED_BY(mutex_);                    // every element is dirty and not processing
  FairOrder behind_ GUARDED_BY(mutex_);                   // so too, but for keys that have come forward or out since
  std::map<std::string, Wait> dirty_ GUARDED_BY(mutex_);  // to be worked on
  std::set<std::string> processing_ GUARDED_BY(mutex_);   // being worked on
  int ahead_ GUARDED_BY(mutex_) = 0;                      // keys of order_ that went before one of behind_
  DueTimes due_ GUARDED_BY(mutex_);
  std::map<std::string, int> failures_ GUARDED_BY(mutex_);
  int64_t retries_ GUARDED_BY(mutex_) = 0;
  bool stopping_ GUARDED_BY(mutex_) = false;
  Histogram<kQueueBounds> waits_;
};

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_WORK_QUEUE_H_
