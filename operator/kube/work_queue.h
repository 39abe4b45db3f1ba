// Keys that wait for a worker.
//
//   - Fair: keys come out in the order in which they went in.
//   - Stingy: a key that waits is not added twice, and one that is being worked on is added again only
//     when it is done.
//   - Delayed: AddAfter makes a key due later; of several times the earliest counts.
//   - Backed off: AddFailed waits 5 ms x 2^n, at most 1000 s, n the failures since Forget.
//   - After ShutDown nothing is added, and Get returns nothing.
// Source: the contract of client-go's util/workqueue.
#ifndef TRAINYARD_OPERATOR_KUBE_WORK_QUEUE_H_
#define TRAINYARD_OPERATOR_KUBE_WORK_QUEUE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "operator/base/clock.h"
#include "operator/base/histogram.h"
#include "operator/base/mutex.h"

namespace trainyard::kube {

inline constexpr std::array kQueueBounds{0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0};

// Thread-safe.
class WorkQueue {
 public:
  explicit WorkQueue(const Clock& clock) : clock_(clock) {}

  void Add(const std::string& key);
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
  // Since when the key that comes next has waited; nothing when none does.
  std::optional<Instant> WaitingSince() const;
  // How long keys waited, from when they were due to when a worker took them.
  HistogramReading waits() const { return waits_.Read(); }

 private:
  void AddLocked(const std::string& key) REQUIRES_LOCK(mutex_);
  void MoveDue() REQUIRES_LOCK(mutex_);
  std::optional<std::string> Pop() REQUIRES_LOCK(mutex_);

  const Clock& clock_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<std::string> order_ GUARDED_BY(mutex_);         // every element is dirty and not processing
  std::map<std::string, Instant> dirty_ GUARDED_BY(mutex_);  // to be worked on, and since when
  std::set<std::string> processing_ GUARDED_BY(mutex_);      // being worked on
  std::map<std::string, Instant> due_ GUARDED_BY(mutex_);
  std::map<std::string, int> failures_ GUARDED_BY(mutex_);
  int64_t retries_ GUARDED_BY(mutex_) = 0;
  bool stopping_ GUARDED_BY(mutex_) = false;
  Histogram<kQueueBounds> waits_;
};

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_WORK_QUEUE_H_
