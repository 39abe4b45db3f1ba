#include "operator/kube/work_queue.h"

#include <algorithm>
#include <cmath>

namespace trainyard::kube {
namespace {

constexpr double kFirstWait = 0.005, kLongestWait = 1000;
constexpr int kAhead = 10;

}  // namespace

void WorkQueue::Add(const std::string& key) {
  const MutexLock lock(mutex_);
  AddLocked(key);
}

void WorkQueue::AddBehind(const std::string& key) {
  const MutexLock lock(mutex_);
  AddLocked(key, true);
}

void WorkQueue::AddLocked(const std::string& key, bool behind) {
  if (stopping_ || !Enqueue(key, {clock_.Steady(), behind})) return;
  if (!behind) due_.erase(key);  // the due time may come before its turn
  changed_.NotifyOne();
}

bool WorkQueue::Enqueue(const std::string& key, Wait wait) {
  const auto [entry, added] = dirty_.try_emplace(key, wait);
  if (!added && (wait.behind || !entry->second.behind)) return false;
  entry->second.behind = wait.behind;
  if (!processing_.contains(key)) Append(key, wait.behind);
  DropStale();
  return true;
}

void WorkQueue::Append(const std::string& key, bool behind) { (behind ? behind_ : order_).Push(key); }

void WorkQueue::DropStale() {
  while (!behind_.empty()) {
    const std::string& key = behind_.Front();
    const auto found = dirty_.find(key);
    if (found != dirty_.end() && found->second.behind && !processing_.contains(key)) return;
    behind_.Pop();
  }
}

void WorkQueue::AddAfter(const std::string& key, double seconds) {
  const MutexLock lock(mutex_);
  if (seconds <= 0) return AddLocked(key);
  const auto waits = dirty_.find(key);
  if (stopping_ || (waits != dirty_.end() && !waits->second.behind && !processing_.contains(key))) return;
  const Instant due = After(clock_.Steady(), seconds);
  const auto [entry, added] = due_.try_emplace(key, due);
  if (!added && entry->second <= due) return;  // nobody has to wake up for it
  entry->second = due;
  changed_.NotifyOne();
}

void WorkQueue::AddFailed(const std::string& key) {
  double wait;
  {
    const MutexLock lock(mutex_);
    ++retries_;
    wait = std::min(kFirstWait * std::pow(2, failures_[key]++), kLongestWait);
  }
  AddAfter(key, wait);
}

void WorkQueue::Forget(const std::string& key) {
  const MutexLock lock(mutex_);
  failures_.erase(key);
}

void WorkQueue::MoveDue() {
  const Instant now = clock_.Steady();
  for (auto entry = due_.begin(); entry != due_.end();) {
    if (entry->second > now) {
      ++entry;
      continue;
    }
    const auto [key, since] = *entry;
    entry = due_.erase(entry);
    Enqueue(key, {since, false});
  }
}

std::optional<std::string> WorkQueue::TakeNext() {
  if (!order_.empty() && (behind_.empty() || ahead_ < kAhead)) {
    ahead_ = behind_.empty() ? 0 : ahead_ + 1;
    return order_.Pop();
  }
  if (behind_.empty()) return std::nullopt;
  ahead_ = 0;
  return behind_.Pop();
}

std::optional<std::string> WorkQueue::Pop() {
  MoveDue();
  std::optional<std::string> key = stopping_ ? std::nullopt : TakeNext();
  if (!key) return std::nullopt;
  const auto waited = dirty_.find(*key);
  waits_.Observe(SecondsBetween(waited->second.since, clock_.Steady()));
  dirty_.erase(waited);
  processing_.insert(*key);
  DropStale();
  return key;
}

std::optional<std::string> WorkQueue::TryGet() {
  const MutexLock lock(mutex_);
  return Pop();
}

std::optional<std::string> WorkQueue::Get() {
  const MutexLock lock(mutex_);
  for (;;) {
    if (auto key = Pop()) return key;
    if (stopping_) return std::nullopt;
    double wait = 3600;
    for (const auto& [key, due] : due_) wait = std::min(wait, SecondsBetween(clock_.Steady(), due));
    changed_.WaitFor(mutex_, Seconds(std::max(wait, 0.001)));
  }
}

void WorkQueue::Done(const std::string& key) {
  const MutexLock lock(mutex_);
  processing_.erase(key);
  const auto again = dirty_.find(key);
  if (again == dirty_.end()) return;
  Append(key, again->second.behind);
  changed_.NotifyOne();
}

void WorkQueue::ShutDown() {
  const MutexLock lock(mutex_);
  stopping_ = true;
  changed_.NotifyAll();
}

std::optional<Instant> WorkQueue::NextDue() const {
  const MutexLock lock(mutex_);
  std::optional<Instant> next;
  for (const auto& [key, due] : due_) next = next ? std::min(*next, due) : due;
  return next;
}

size_t WorkQueue::depth() const {
  const MutexLock lock(mutex_);
  size_t waiting = dirty_.size();
  for (const std::string& key : processing_) waiting -= dirty_.contains(key) ? 1 : 0;
  return waiting;
}

std::optional<Instant> WorkQueue::WaitingSince() const {
  const MutexLock lock(mutex_);
  std::optional<Instant> since;
  for (const auto& [key, wait] : dirty_) {
    if (!processing_.contains(key)) since = since ? std::min(*since, wait.since) : wait.since;
  }
  return since;
}

int64_t WorkQueue::retries() const {
  const MutexLock lock(mutex_);
  return retries_;
}

}  // namespace trainyard::kube
