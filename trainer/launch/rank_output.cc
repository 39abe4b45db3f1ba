#include "trainer/launch/rank_output.h"

#include <utility>

namespace trainyard {

void RankOutput::Append(std::string_view bytes) {
  if (echo_) echo_->Add(bytes);
  log_->Add(bytes);
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
