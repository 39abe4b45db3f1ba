#include "trainer/launch/log_writer.h"

#include <signal.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include "trainer/base/file.h"
#include "trainer/base/text.h"
#include "trainer/metrics/append_file.h"

namespace trainyard {
namespace {

// A line without its end counts as well.
int64_t LinesIn(std::string_view text) {
  return std::count(text.begin(), text.end(), '\n') + (text.empty() || text.ends_with('\n') ? 0 : 1);
}

}  // namespace

struct LogWriter::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::string queue;
  int64_t lost = 0;     // lines, for good
  int64_t gap = 0;      // lines dropped since the last that was kept
  int64_t writing = 0;  // lines in the thread's hands
  std::string why;      // of the first that was lost
  bool finishing = false, abandoned = false, done = false;

  void Lose(int64_t lines, const std::string& reason) {
    if (why.empty()) why = reason;
    lost += lines;
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
  void Run(const fs::path& path) {
    // Signals are the launcher's business, and a pipe that lost its reader is only an error here.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    std::optional<AppendFile> file;
    std::string problem = "it cannot be written";
    try {
      std::error_code ignored;  // AppendFile says what is wrong.
      fs::create_directories(path.parent_path(), ignored);
      fs::resize_file(path, 0, ignored);
      file.emplace(path);
    } catch (const std::exception& error) {
      problem = error.what();
    }
    for (std::string text; !(text = Next()).empty();) {
      const bool written = file && file->Append(text);
      const std::lock_guard lock(mutex);
      if (abandoned) break;  // It has been counted.
      if (!written) Lose(writing, problem);
      writing = 0;
    }
    file.reset();
    const std::lock_guard lock(mutex);
    done = true;
    changed.notify_all();
  }
};

LogWriter::LogWriter(const LogOptions& options) : options_(options), shared_(std::make_shared<Shared>()) {}

LogWriter::~LogWriter() {
  if (!thread_.joinable()) return;
  Finish();
  Close();
}

void LogWriter::Add(std::string_view text) {
  const std::lock_guard lock(shared_->mutex);
  Shared& shared = *shared_;
  if (shared.queue.size() + text.size() > options_.max_bytes) {
    shared.Lose(LinesIn(text), "it is written more slowly than the rank writes");
    shared.gap += LinesIn(text);
    return;
  }
  if (shared.gap > 0) shared.queue += Format("\n[%lld lines are missing here]\n", static_cast<long long>(shared.gap));
  shared.gap = 0;
  shared.queue += text;
  shared.changed.notify_all();
}

void LogWriter::Open(const fs::path& path) {
  if (thread_.joinable()) return;
  path_ = path;
  thread_ = std::thread([shared = shared_, path] { shared->Run(path); });
}

void LogWriter::Finish() {
  deadline_ = std::chrono::steady_clock::now() + options_.closing;
  const std::lock_guard lock(shared_->mutex);
  shared_->finishing = true;
  shared_->changed.notify_all();
}

std::string LogWriter::Close() {
  if (!thread_.joinable()) return "";
  std::unique_lock lock(shared_->mutex);
  Shared& shared = *shared_;
  const bool done = shared.changed.wait_until(lock, deadline_, [&] { return shared.done; });
  if (!done) {
    shared.abandoned = true;
    shared.Lose(shared.writing + LinesIn(shared.queue), "it is not written in time");
    shared.queue.clear();
  }
  const int64_t lost = shared.lost;
  const std::string why = shared.why;
  lock.unlock();
  // A thread in a system call that never returns cannot be joined; it ends with the process.
  done ? thread_.join() : thread_.detach();
  return lost == 0 ? "" : Format("%s lacks %lld lines: %s", path_.c_str(), static_cast<long long>(lost), why.c_str());
}

}  // namespace trainyard
