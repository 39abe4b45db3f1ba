#include "operator/kube/work_queue.h"

#include <algorithm>
#include <cmath>

namespace trainyard::kube {
namespace {

constexpr double kFirstWait = 0.005, kLongestWait = 1000;

}  // namespace

void WorkQueue::Add(const std::string& key) {
  const MutexLock lock(mutex_);
  AddLocked(key);
}

void WorkQueue::AddLocked(const std::string& key) {
  if (stopping_ || !dirty_.try_emplace(key, clock_.Steady()).second) return;
  due_.erase(key);
  if (processing_.contains(key)) return;
  order_.push_back(key);
  changed_.NotifyOne();
}

void WorkQueue::AddAfter(const std::string& key, double seconds) {
  const MutexLock lock(mutex_);
  if (seconds <= 0) return AddLocked(key);
  if (stopping_ || (dirty_.contains(key) && !processing_.contains(key))) return;
  const Instant due = After(clock_.Steady(), seconds);
  const auto [entry, added] = due_.try_emplace(key, due);
  if (!added) entry->second = std::min(entry->second, due);
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
    if (!dirty_.try_emplace(key, since).second || processing_.contains(key)) continue;
    order_.push_back(key);
  }
}

std::optional<std::string> WorkQueue::Pop() {
  MoveDue();
  if (order_.empty() || stopping_) return std::nullopt;
  std::string key = std::move(order_.front());
  order_.pop_front();
  const auto waited = dirty_.find(key);
  waits_.Observe(SecondsBetween(waited->second, clock_.Steady()));
  dirty_.erase(waited);
  processing_.insert(key);
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
  if (!dirty_.contains(key)) return;
  order_.push_back(key);
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
  return order_.size();
}

std::optional<Instant> WorkQueue::WaitingSince() const {
  const MutexLock lock(mutex_);
  return order_.empty() ? std::nullopt : std::optional(dirty_.at(order_.front()));
}

int64_t WorkQueue::retries() const {
  const MutexLock lock(mutex_);
  return retries_;
}

}  // namespace trainyard::kube
