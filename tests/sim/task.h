// A thread that runs only while whoever resumes it waits: of a scheduler and its tasks exactly one runs at any
// moment, so that a run is a function of its seed, and nothing is shared at the same time.
//
// Threads and not ucontext: the sanitizers know them.
#ifndef TRAINYARD_TESTS_SIM_TASK_H_
#define TRAINYARD_TESTS_SIM_TASK_H_

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace trainyard::sim {

// Thrown through a task that is killed: its process dies, wherever it is.
struct Crash {};

class Task {
 public:
  // `body` may call Yield on this task, and end by a Crash; any other exception ends the program.
  explicit Task(std::function<void()> body) : body_(std::move(body)) {}
  ~Task() { Kill(); }
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  // Runs the body until it yields or ends. Nothing when it has ended.
  void Resume();
  // Called by the body: returns when it is resumed, and throws Crash when it is killed.
  void Yield();
  // Throws Crash out of the Yield in which the body waits, and waits for its end.
  void Kill();
  bool ended() const { return ended_; }

 private:
  void Run();

  const std::function<void()> body_;
  std::thread thread_;  // started by the first Resume
  std::mutex mutex_;
  std::condition_variable to_body_, to_owner_;
  bool bodys_turn_ = false;  // guarded by mutex_
  bool killed_ = false, ended_ = false;
};

}  // namespace trainyard::sim

#endif  // TRAINYARD_TESTS_SIM_TASK_H_
