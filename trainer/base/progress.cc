#include "trainer/base/progress.h"

#include <unistd.h>

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

std::optional<double> Progress::AtPace(int64_t done) const {
  if (done <= *first_done_) return std::nullopt;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - first_).count();
  return seconds * static_cast<double>(total_ - done) / static_cast<double>(done - *first_done_);
}

std::string Progress::Text(int64_t done, const std::string& detail, std::optional<double> remaining) const {
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const double share = total_ > 0 ? static_cast<double>(done) / static_cast<double>(total_) : 1;
  constexpr int kWidth = 24;
  std::string bar;
  for (int i = 0; i < kWidth; ++i) bar += i < std::lround(share * kWidth) ? "#" : "-";
  std::string text = style_ == ProgressStyle::kBar ? Format("%s [%s] ", label_.c_str(), bar.c_str()) : label_ + " ";
  text += Format("%lld/%lld", static_cast<long long>(done), static_cast<long long>(total_));
  if (!detail.empty()) text += "  " + detail;
  return text +
         (done < total_ ? "  ETA " + (remaining ? HumanSeconds(*remaining) : "?") : "  " + HumanSeconds(elapsed));
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
  const std::string text = Text(done, detail, remaining ? remaining : AtPace(done));
  if (style_ == ProgressStyle::kLines) {
    std::fprintf(stderr, "%s\n", text.c_str());
  } else {
    std::fprintf(stderr, "\r\033[K%s", text.c_str());
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
