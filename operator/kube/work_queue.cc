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
  if (!behind) due_.Erase(key);  // the due time may come before its turn
  WakeOne();
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
  if (!due_.Add(key, due) || *due_.Next() < due) return;  // nobody has to wake up for it
  if (timekeeper_) {
    sooner_.NotifyOne();
  } else {
    WakeOne();
  }
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
  while (const auto due = due_.Pop(now)) Enqueue(due->first, {due->second, false});
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
    if (auto key = Pop()) {
      // What came with it, and the times, are left to another one.
      if (!order_.empty() || !behind_.empty() || (!timekeeper_ && due_.Next())) WakeOne();
      return key;
    }
    if (stopping_) return std::nullopt;
    WaitForKey();
  }
}

void WorkQueue::WaitForKey() {
  if (timekeeper_) {
    ++others_;
    while (calls_ == 0 && !stopping_) called_.WaitFor(mutex_, Seconds(3600));
    --others_;
    calls_ = std::max(calls_ - 1, 0);
    return;
  }
  timekeeper_ = true;
  const std::optional<Instant> next = due_.Next();
  sooner_.WaitFor(mutex_, next ? std::max<Seconds>(*next - clock_.Steady(), Seconds(0.001)) : Seconds(3600));
  timekeeper_ = false;
}

void WorkQueue::WakeOne() {
  if (calls_ < others_) {
    ++calls_;
    called_.NotifyOne();
  } else if (timekeeper_) {
    sooner_.NotifyOne();
  }
}

void WorkQueue::Done(const std::string& key) {
  const MutexLock lock(mutex_);
  processing_.erase(key);
  const auto again = dirty_.find(key);
  if (again == dirty_.end()) return;
  Append(key, again->second.behind);
  WakeOne();
}

void WorkQueue::ShutDown() {
  const MutexLock lock(mutex_);
  stopping_ = true;
  called_.NotifyAll();
  sooner_.NotifyAll();
}

std::optional<Instant> WorkQueue::NextDue() const {
  const MutexLock lock(mutex_);
  return due_.Next();
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
