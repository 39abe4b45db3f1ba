#include "trainer/base/progress.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "trainer/base/text.h"

namespace trainyard {

ProgressStyle ProgressStyleFromEnvironment() {
  const char* style = std::getenv("TRAINYARD_PROGRESS");
  if (style && !std::strcmp(style, "none")) return ProgressStyle::kNone;
  if (style && !std::strcmp(style, "lines")) return ProgressStyle::kLines;
  if (style && !std::strcmp(style, "bar")) return ProgressStyle::kBar;
  return isatty(STDERR_FILENO) ? ProgressStyle::kBar : ProgressStyle::kLines;
}

Progress::Progress(std::string label, int64_t total, ProgressStyle style)
    : label_(std::move(label)), total_(total), style_(style), start_(std::chrono::steady_clock::now()) {}

Progress::~Progress() { Clear(); }

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
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - first_).count();
  return seconds * static_cast<double>(total_ - done) / static_cast<double>(done - *first_done_);
}

std::string Progress::Time(int64_t done, std::optional<double> remaining) const {
  if (done < total_) return "ETA " + (remaining ? HumanSeconds(*remaining) : "?");
  return HumanSeconds(std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count());
}

void Progress::Update(int64_t done, const std::string& detail, std::optional<double> remaining) {
  if (style_ == ProgressStyle::kNone) return;
  const auto now = std::chrono::steady_clock::now();
  if (!first_done_) {
    first_done_ = done;
    first_ = now;
  }
  const double since = std::chrono::duration<double>(now - last_).count();
  const double interval = style_ == ProgressStyle::kBar ? 0.1 : kLineSeconds;
  if (done < total_ && since < interval) return;
  last_ = now;
  const std::string time = Time(done, remaining ? remaining : AtPace(done));
  if (style_ == ProgressStyle::kLines) {
    std::fprintf(stderr, "%s %lld/%lld  %s%s%s\n", label_.c_str(), static_cast<long long>(done),
                 static_cast<long long>(total_), detail.c_str(), detail.empty() ? "" : "  ", time.c_str());
  } else {
    std::fprintf(stderr, "\r\033[K%s", BarLine(label_, done, total_, detail, time, TerminalColumns()).c_str());
    drawn_ = true;
    if (done >= total_) {
      std::fputc('\n', stderr);
      drawn_ = false;
    }
  }
  std::fflush(stderr);
}

void Progress::Clear() {
  if (!drawn_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace trainyard
