#include "trainer/base/progress.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "trainer/base/text.h"

namespace trainyard {
namespace {

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

}  // namespace

ProgressStyle ProgressStyleFromEnvironment() {
  const char* style = std::getenv("TRAINYARD_PROGRESS");
  if (style && !std::strcmp(style, "none")) return ProgressStyle::kNone;
  if (style && !std::strcmp(style, "lines")) return ProgressStyle::kLines;
  if (style && !std::strcmp(style, "bar")) return ProgressStyle::kBar;
  return isatty(STDERR_FILENO) ? ProgressStyle::kBar : ProgressStyle::kLines;
}

Progress::Progress(std::string label, int64_t total, ProgressStyle style, End end)
    : label_(std::move(label)), total_(total), style_(style), end_(end) {}

Progress::~Progress() {
  StopAwaiting();
  Erase();
}

int TerminalColumns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
    if (const int terminal = open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC); terminal >= 0) {
      if (ioctl(terminal, TIOCGWINSZ, &size) != 0) size.ws_col = 0;
      close(terminal);
    }
  }
  if (size.ws_col > 0) return size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  const int value = columns ? std::atoi(columns) : 0;
  return value > 0 ? value : 80;
}

std::string BarLine(const std::string& label, int64_t done, int64_t total, const std::string& detail,
                    const std::string& time, int columns) {
  constexpr size_t kBar = 24, kSmallestBar = 4;
  const size_t room = static_cast<size_t>(std::max(1, columns - 1));
  const std::string counts = Format("%lld/%lld", static_cast<long long>(done), static_cast<long long>(total));
  const std::string end = "  " + time;
  std::string middle = detail.empty() ? "" : "  " + detail;
  const size_t words = label.size() + 1 + counts.size() + end.size();
  const size_t free = room > words + middle.size() + 3 ? room - words - middle.size() - 3 : 0;
  const size_t width = std::min(kBar, free);
  std::string bar;
  if (width >= kSmallestBar) {
    const double share = total > 0 ? std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0) : 1;
    bar = "[" + std::string(width, '-') + "] ";
    std::fill_n(bar.begin() + 1, std::lround(share * static_cast<double>(width)), '#');
  }
  if (bar.empty()) {
    middle.resize(std::min(middle.size(), room > words ? room - words : 0));
    middle.erase(middle.find_last_not_of(' ') + 1);
  }
  return (label + " " + bar + counts + middle + end).substr(0, room);
}

std::optional<double> Progress::AtPace(int64_t done) const {
  if (done <= *first_done_) return std::nullopt;
  const double seconds = Seconds(first_);
  return seconds * static_cast<double>(total_ - done) / static_cast<double>(done - *first_done_);
}

std::string Progress::Time(int64_t done, std::optional<double> remaining) const {
  if (done < total_) return "ETA " + (remaining ? HumanSeconds(*remaining) : "?");
  return HumanSeconds(Seconds(start_));
}

bool Progress::Due(int64_t done) {
  if (done >= total_) return style_ == ProgressStyle::kBar || end_ == End::kLine;
  if (style_ == ProgressStyle::kLines && end_ == End::kNothing) {
    const double seconds = Seconds(start_);
    if (seconds < next_line_) return false;
    next_line_ = 2 * seconds;
    return true;
  }
  return Seconds(last_) >= (style_ == ProgressStyle::kBar ? 0.1 : kLineSeconds);
}

void Progress::Update(int64_t done, const std::string& detail, std::optional<double> remaining) {
  if (style_ == ProgressStyle::kNone) return;
  StopAwaiting();
  if (!first_done_) {
    first_done_ = done;
    first_ = Clock::now();
  }
  if (!Due(done)) return;
  last_ = Clock::now();
  const std::string time = Time(done, remaining ? remaining : AtPace(done));
  if (style_ == ProgressStyle::kLines) {
    Draw(Format("%s %lld/%lld  %s%s%s", label_.c_str(), static_cast<long long>(done), static_cast<long long>(total_),
                detail.c_str(), detail.empty() ? "" : "  ", time.c_str()));
  } else if (done >= total_ && end_ == End::kNothing) {
    Erase();
  } else {
    Draw(BarLine(label_, done, total_, detail, time, TerminalColumns()));
    if (done < total_) return;
    std::fputc('\n', stderr);
    drawn_ = false;
  }
}

void Progress::Await(int64_t done, const std::string& what) {
  if (style_ == ProgressStyle::kNone) return;
  StopAwaiting();
  first_done_ = done;
  first_ = Clock::now();
  awaiting_ = true;
  try {
    awaits_ = std::thread([this, what] { SayRunning(what); });
  } catch (const std::system_error&) {  // No line is worth an end of the work.
  }
}

// Until nothing is awaited any more.
void Progress::SayRunning(const std::string& what) {
  std::unique_lock lock(mutex_);
  double next = kLineSeconds;
  for (;;) {
    const auto until = first_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(next));
    if (changed_.wait_until(lock, until, [this] { return !awaiting_; })) return;
    const double seconds = Seconds(first_);
    const std::string line = what + " running for " + HumanSeconds(seconds);
    if (style_ == ProgressStyle::kLines) {
      Draw(line);
      next = 2 * seconds;
      next_line_ = 2 * Seconds(start_);
    } else {
      Draw(line.substr(0, static_cast<size_t>(std::max(1, TerminalColumns() - 1))));
      next = seconds + 1;
    }
  }
}

void Progress::StopAwaiting() {
  if (!awaits_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    awaiting_ = false;
  }
  changed_.notify_all();
  awaits_.join();
}

// A line, or the bar's.
void Progress::Draw(const std::string& line) {
  const bool bar = style_ == ProgressStyle::kBar;
  std::fprintf(stderr, bar ? "\r\033[K%s" : "%s\n", line.c_str());
  std::fflush(stderr);
  drawn_ = bar;
}

void Progress::Erase() {
  if (!drawn_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

void Progress::Clear() {
  const std::lock_guard lock(mutex_);
  Erase();
}

void Progress::Print(const std::string& line) {
  const std::lock_guard lock(mutex_);
  Erase();
  std::fprintf(stderr, "%s\n", line.c_str());
}

}  // namespace trainyard
