#include "operator/local/live_view.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "common/text.h"
#include "operator/reconcile/conditions.h"

namespace trainyard::local {
namespace {

constexpr int kBarWidth = 20;
constexpr double kLineSeconds = 10;

std::string Number(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace

LiveView::LiveView(int fd, bool quiet) : fd_(fd), quiet_(quiet), terminal_(isatty(fd) != 0) {}

LiveView::~LiveView() { Finish(); }

void LiveView::Write(const std::string& text) const {
  if (quiet_) return;
  [[maybe_unused]] const ssize_t written = write(fd_, text.data(), text.size());
}

void LiveView::Finish() {
  if (drawn_) Write("\n");
  drawn_ = false;
}

void LiveView::Event(const std::string& text) {
  if (drawn_) Write("\r\033[K");
  drawn_ = false;
  Write(text + "\n");
}

void LiveView::State(const api::TrainingJob& job, Time now) {
  const std::string line = StateLine(job.status);
  if (terminal_) {
    Write("\r\033[K" + line);
    drawn_ = true;
    return;
  }
  if (job.status.phase == last_phase_ && SecondsBetween(last_time_, now) < kLineSeconds) return;
  last_phase_ = job.status.phase;
  last_time_ = now;
  Write(line + "\n");
}

std::string LiveView::StateLine(const api::JobStatus& status) {
  std::string line = status.phase.empty() ? "New" : status.phase;
  if (const api::Progress& progress = status.progress; progress.step && progress.total_steps && progress.percent) {
    const int filled = static_cast<int>(kBarWidth * std::clamp<int64_t>(*progress.percent, 0, 100) / 100);
    line += "  step " + std::to_string(*progress.step) + "/" + std::to_string(*progress.total_steps) + " [" +
            std::string(static_cast<size_t>(filled), '#') + std::string(static_cast<size_t>(kBarWidth - filled), '-') +
            "] " + std::to_string(*progress.percent) + "%";
    if (status.progress.eta_seconds.value_or(0) > 0)
      line += "  ETA " + FormatDuration(static_cast<double>(*status.progress.eta_seconds));
    if (status.progress.loss) line += "  loss " + Number("%.4f", *status.progress.loss);
  }
  if (!status.completion_time)
    line += "  workers " + std::to_string(status.workers.ready) + "/" + std::to_string(status.workers.desired);
  if (status.restarts.total > 0) line += "  restarts " + std::to_string(status.restarts.total);
  return line;
}

std::string LiveView::Printable(const std::string& line, size_t longest) {
  // What an escape sequence leaves without its first character is harmless: "[31m".
  std::string text;
  for (const char c : line) {
    if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) text += c;
    if (c == '\t') text += ' ';
    if (text.size() > longest) break;
  }
  return Shorten(text, longest);
}

std::string LiveView::Summary(const api::TrainingJob& job) {
  const api::JobStatus& status = job.status;
  std::string text = "\njob          " + job.ns + "/" + job.name + "\nphase        " + status.phase;
  if (status.start_time && status.completion_time)
    text += " after " + FormatDuration(SecondsBetween(*status.start_time, *status.completion_time));
  text += "\nattempts     " + std::to_string(status.attempt) + ", restarts " + std::to_string(status.restarts.total) +
          " (" + std::to_string(status.restarts.charged) + " charged)";
  if (status.progress.step && status.progress.total_steps)
    text += "\nstep         " + std::to_string(*status.progress.step) + " of " +
            std::to_string(*status.progress.total_steps) +
            (status.progress.loss ? ", loss " + Number("%.4f", *status.progress.loss) : "");
  if (status.checkpoint.step) text += "\ncheckpoint   step " + std::to_string(*status.checkpoint.step);
  for (const api::Condition& condition : status.conditions) {
    if (condition.status == "True")
      text += "\n" + condition.type + std::string(condition.type.size() < 13 ? 13 - condition.type.size() : 1, ' ') +
              condition.reason + ": " + Printable(condition.message, kMessageWidth);
  }
  if (status.last_failure) {
    const api::Failure& failure = *status.last_failure;
    // What came before a success is no failure of the job's.
    text +=
        std::string(reconcile::IsTrue(status, reconcile::kCompleteCondition) ? "\nlast restart" : "\nlast failure") +
        " attempt " + std::to_string(failure.attempt) + ", rank " + std::to_string(failure.rank) + ", " +
        failure.reason + (failure.exit_code ? ", exit code " + std::to_string(*failure.exit_code) : "");
    for (const std::string& line : failure.tail) text += "\n  | " + Printable(line, kOutputWidth);
  }
  return text + "\n";
}

}  // namespace trainyard::local
