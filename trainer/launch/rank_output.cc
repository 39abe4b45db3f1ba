#include "trainer/launch/rank_output.h"

#include <utility>

namespace trainyard {

RankOutput::~RankOutput() {
  if (log_) std::fclose(log_);
}

RankOutput::RankOutput(RankOutput&& other) noexcept
    : echo_(other.echo_),
      log_(std::exchange(other.log_, nullptr)),
      pending_(std::move(other.pending_)),
      line_(std::move(other.line_)),
      tail_(std::move(other.tail_)) {}

void RankOutput::OpenLog(const std::string& path) {
  if (log_) return;
  log_ = std::fopen(path.c_str(), "we");
  if (!log_) return;
  std::fwrite(pending_.data(), 1, pending_.size(), log_);
  std::fflush(log_);
  pending_.clear();
}

void RankOutput::Append(std::string_view bytes) {
  if (echo_) {
    std::fwrite(bytes.data(), 1, bytes.size(), echo_);
    std::fflush(echo_);
  }
  Log(bytes);
  for (char c : bytes) {
    if (c == '\n') {
      AddLine(std::move(line_));
      line_.clear();
    } else if (c == '\r') {
      line_.clear();
    } else if (line_.size() < 1000) {
      line_ += c;
    }
  }
}

void RankOutput::Log(std::string_view text) {
  if (log_) {
    std::fwrite(text.data(), 1, text.size(), log_);
    std::fflush(log_);
  } else if (pending_.size() < kMaxPending) {
    pending_ += text;
  }
}

std::vector<std::string> RankOutput::Tail() const {
  std::vector<std::string> lines(tail_.begin(), tail_.end());
  if (!line_.empty()) lines.push_back(line_);
  return lines;
}

void RankOutput::AddLine(std::string line) {
  tail_.push_back(std::move(line));
  if (tail_.size() > kTailLines) tail_.pop_front();
}

}  // namespace trainyard
