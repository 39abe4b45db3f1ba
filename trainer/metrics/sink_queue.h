// Where events go, and what keeps a slow place from holding anything else up.
#ifndef TRAINYARD_TRAINER_METRICS_SINK_QUEUE_H_
#define TRAINYARD_TRAINER_METRICS_SINK_QUEUE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trainer/base/abandonable_thread.h"
#include "trainer/metrics/event.h"

namespace trainyard {

// A place that events are written to. One thread opens, uses and destroys it; each of these may
// block for ever, and that thread may then live until the process ends: a sink owns what it uses.
class Sink {
 public:
  virtual ~Sink() = default;
  // An exception: the event is lost. The next one is tried again.
  virtual void Write(const Event& event) = 0;
};

struct SinkOptions {
  // Each that waits lies between the tensors in the heap of the thread that steps: 256 of them make malloc, and so a
  // step, one per cent slower (docs/benchmarks.md).
  size_t max_events = 128;
  size_t max_bytes = size_t{64} << 20;
  // From Finish() on, for writing what is queued. Less than the launcher's wait between the end of
  // one rank and SIGKILL for the others.
  std::chrono::milliseconds closing{3000};
};

// A bounded queue and a thread in front of one sink. What does not fit, or is not written, is
// dropped and counted. Safe for any number of threads, but Finish and Close are called once, by one.
class SinkQueue {
 public:
  using Open = std::function<std::unique_ptr<Sink>()>;

  // `open` runs on the queue's thread; if it throws, every event is dropped.
  SinkQueue(std::string name, Open open, const SinkOptions& options = {});
  ~SinkQueue();
  SinkQueue(const SinkQueue&) = delete;
  SinkQueue& operator=(const SinkQueue&) = delete;

  const std::string& name() const { return name_; }
  // Never waits for the sink.
  void Add(std::shared_ptr<const Event> event);
  int64_t dropped() const;
  // Why the sink cannot be opened or lost its first event; empty if neither happened, and after the
  // first call that told it.
  std::string TakeFailure();

  // No event comes any more; returns at once.
  void Finish();
  // Waits for the queue to be written, at most until the closing deadline. What is left then is
  // dropped, and the thread is left to itself: false.
  bool Close();

 private:
  struct Shared;

  std::string name_;
  SinkOptions options_;
  std::chrono::steady_clock::time_point deadline_{};
  std::shared_ptr<Shared> shared_;           // the thread's as well
  std::optional<AbandonableThread> thread_;  // none once it is closed
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_METRICS_SINK_QUEUE_H_
