#include "tests/sim/task.h"

namespace trainyard::sim {

void Task::Resume() {
  if (ended_) return;
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  {
    const std::lock_guard lock(mutex_);
    bodys_turn_ = true;
  }
  to_body_.notify_one();
  std::unique_lock lock(mutex_);
  to_owner_.wait(lock, [this] { return !bodys_turn_; });
}

void Task::Yield() {
  {
    const std::lock_guard lock(mutex_);
    bodys_turn_ = false;
  }
  to_owner_.notify_one();
  std::unique_lock lock(mutex_);
  to_body_.wait(lock, [this] { return bodys_turn_; });
  if (killed_) throw Crash{};
}

void Task::Kill() {
  killed_ = true;
  if (thread_.joinable()) {
    Resume();
    thread_.join();
  }
  ended_ = true;
}

void Task::Run() {
  {
    std::unique_lock lock(mutex_);
    to_body_.wait(lock, [this] { return bodys_turn_; });
  }
  try {
    body_();
  } catch (const Crash&) {  // the end of a process, not of the simulation
  }
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    bodys_turn_ = false;
  }
  to_owner_.notify_one();
}

}  // namespace trainyard::sim
