#include "trainer/launch/log_writer.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/text.h"
#include "trainer/metrics/append_file.h"

namespace trainyard {
namespace {

// A line without its end counts as well.
int64_t LinesIn(std::string_view text) {
  return std::count(text.begin(), text.end(), '\n') + (text.empty() || text.ends_with('\n') ? 0 : 1);
}

// What takes the text, or throws.
using Taker = std::function<void(std::string_view text)>;

Taker TakerOf(const fs::path& path) {
  std::error_code ignored;  // AppendFile says what is wrong.
  fs::create_directories(path.parent_path(), ignored);
  // Behind what is there: of the same attempt, which a second start must not take from whoever reads why it failed.
  return [file = std::make_shared<AppendFile>(path)](std::string_view text) { file->Append(text); };
}

// The descriptor may be non-blocking: that is a property of what is behind it, and whoever shares it may have said so.
void WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      pollfd ready{fd, POLLOUT, 0};
      poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      throw StorageError(std::string("cannot write: ") + std::strerror(errno));
    }
  }
}

std::string Lacks(const std::string& name, int64_t lines, const std::string& why) {
  return lines == 0 ? "" : Format("%s lacks %lld lines: %s", name.c_str(), static_cast<long long>(lines), why.c_str());
}

constexpr char kLate[] = "it is not written in time";

}  // namespace

struct LogWriter::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::string queue;
  int64_t lost = 0;     // lines, for good
  int64_t gap = 0;      // lines dropped since the last that was kept
  int64_t writing = 0;  // lines in the thread's hands
  std::string why;      // of the first that was lost
  bool finishing = false, abandoned = false;

  void Lose(int64_t lines, const std::string& reason) {
    if (why.empty()) why = reason;
    lost += lines;
  }

  void Put(std::string_view text) {
    if (gap > 0) queue += Format("\n[%lld lines are missing here]\n", static_cast<long long>(gap));
    gap = 0;
    queue += text;
    changed.notify_all();
  }

  // All that waits; empty when nothing will come.
  std::string Next() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return finishing || !queue.empty(); });
    if (abandoned) return "";
    writing = LinesIn(queue);
    return std::exchange(queue, "");
  }

  // On the thread of its own, which may outlive the LogWriter.
  void Run(const std::function<Taker()>& open) {
    Taker take;
    std::string problem;
    try {
      take = open();
    } catch (const std::exception& error) {
      problem = error.what();
    }
    for (std::string text; !(text = Next()).empty();) {
      bool written = take != nullptr;
      try {
        if (take) take(text);
      } catch (const std::exception& error) {
        problem = error.what();
        written = false;
      }
      const std::lock_guard lock(mutex);
      if (abandoned) break;  // It has been counted.
      if (!written) Lose(writing, problem);
      writing = 0;
      changed.notify_all();
    }
  }
};

LogWriter::LogWriter(const LogOptions& options) : options_(options), shared_(std::make_shared<Shared>()) {}

LogWriter::~LogWriter() {
  if (!thread_) return;
  Finish();
  Close();
}

void LogWriter::Add(std::string_view text) {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->queue.size() + text.size() <= options_.max_bytes) return shared_->Put(text);
  shared_->Lose(LinesIn(text), "it is written more slowly than the rank writes");
  shared_->gap += LinesIn(text);
}

void LogWriter::Say(std::string_view text) {
  const std::lock_guard lock(shared_->mutex);
  shared_->Put(text);
}

void LogWriter::Open(const fs::path& path) {
  if (thread_) return;
  name_ = path.string();
  thread_.emplace([shared = shared_, path] { shared->Run([&] { return TakerOf(path); }); });
}

void LogWriter::Open(int fd, const std::string& name) {
  if (thread_) return;
  name_ = name;
  thread_.emplace(
      [shared = shared_, fd] { shared->Run([fd] { return [fd](std::string_view text) { WriteAll(fd, text); }; }); });
}

std::string LogWriter::Flush(std::chrono::milliseconds patience) {
  std::unique_lock lock(shared_->mutex);
  Shared& shared = *shared_;
  shared.changed.wait_for(lock, patience, [&] { return shared.queue.empty() && shared.writing == 0; });
  return Lacks(name_, shared.lost + shared.writing + LinesIn(shared.queue), shared.why.empty() ? kLate : shared.why);
}

void LogWriter::Finish() {
  deadline_ = std::chrono::steady_clock::now() + options_.closing;
  const std::lock_guard lock(shared_->mutex);
  shared_->finishing = true;
  shared_->changed.notify_all();
}

std::string LogWriter::Close() {
  if (!thread_) return "";
  const bool done = thread_->WaitUntil(deadline_);
  thread_.reset();
  const std::lock_guard lock(shared_->mutex);
  Shared& shared = *shared_;
  if (!done) {
    shared.abandoned = true;
    shared.Lose(shared.writing + LinesIn(shared.queue), kLate);
    shared.queue.clear();
  }
  return Lacks(name_, shared.lost, shared.why);
}

}  // namespace trainyard
