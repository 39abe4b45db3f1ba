#include "trainer/metrics/sink_queue.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>

namespace trainyard {

struct SinkQueue::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<const Event>> queue;
  size_t bytes = 0;  // of the queue
  int64_t dropped = 0;
  bool writing = false, finishing = false, abandoned = false;
  bool failed = false;  // the first failure has been noted
  std::string failure;

  void Drop(int64_t events, const std::string& why) {
    dropped += events;
    if (!failed) failure = why;
    failed = true;
  }

  // The next event; null when there will be none.
  std::shared_ptr<const Event> Next() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return finishing || !queue.empty(); });
    if (abandoned || queue.empty()) return nullptr;
    auto event = std::move(queue.front());
    queue.pop_front();
    bytes -= BytesOf(*event);
    writing = true;
    return event;
  }

  // On the thread of its own, which may outlive the SinkQueue.
  void Run(const Open& open) {
    std::unique_ptr<Sink> sink;
    std::string why;
    try {
      sink = open();
    } catch (const std::exception& error) {
      why = error.what();
    }
    while (const auto event = Next()) {
      bool written = sink != nullptr;
      try {
        if (sink) sink->Write(*event);
      } catch (const std::exception& error) {
        why = error.what();
        written = false;
      }
      const std::lock_guard lock(mutex);
      // An abandoned event has been counted.
      if (!written && !abandoned) Drop(1, why);
      writing = false;
    }
  }
};

SinkQueue::SinkQueue(std::string name, Open open, const SinkOptions& options)
    : name_(std::move(name)), options_(options), shared_(std::make_shared<Shared>()) {
  thread_.emplace([shared = shared_, open = std::move(open)] { shared->Run(open); });
}

SinkQueue::~SinkQueue() {
  if (!thread_) return;
  Finish();
  Close();
}

void SinkQueue::Add(std::shared_ptr<const Event> event) {
  const std::lock_guard lock(shared_->mutex);
  const size_t bytes = BytesOf(*event);
  const bool full = shared_->queue.size() >= options_.max_events ||
                    (!shared_->queue.empty() && shared_->bytes + bytes > options_.max_bytes);
  if (full) return shared_->Drop(1, "is slower than training: its queue is full");
  shared_->queue.push_back(std::move(event));
  shared_->bytes += bytes;
  shared_->changed.notify_all();
}

int64_t SinkQueue::dropped() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->dropped;
}

std::string SinkQueue::TakeFailure() {
  const std::lock_guard lock(shared_->mutex);
  return std::exchange(shared_->failure, "");
}

void SinkQueue::Finish() {
  deadline_ = std::chrono::steady_clock::now() + options_.closing;
  const std::lock_guard lock(shared_->mutex);
  shared_->finishing = true;
  shared_->changed.notify_all();
}

bool SinkQueue::Close() {
  const bool done = thread_->WaitUntil(deadline_);
  thread_.reset();
  if (done) return true;
  const std::lock_guard lock(shared_->mutex);
  shared_->abandoned = true;
  shared_->dropped += static_cast<int64_t>(shared_->queue.size()) + (shared_->writing ? 1 : 0);
  shared_->queue.clear();
  return false;
}

}  // namespace trainyard
