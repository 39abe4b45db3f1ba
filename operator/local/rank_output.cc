#include "operator/local/rank_output.h"

namespace trainyard::local {
namespace {

constexpr size_t kLongestLine = 64 << 10;
constexpr uint64_t kBehind = 1 << 20, kShown = 64 << 10;

}  // namespace

void RankOutput::Say() {
  while (part_.ends_with('\r')) part_.pop_back();
  const size_t redrawn = part_.rfind('\r');
  line_(redrawn == std::string::npos ? part_ : part_.substr(redrawn + 1));
  part_.clear();
}

bool RankOutput::Read() {
  const std::string text = log_ ? log_->Read() : "";
  for (const char c : text) {
    if (cut_) {
      cut_ = c != '\n';
      continue;
    }
    if (c != '\n') part_ += c;
    if (c == '\n' || part_.size() >= kLongestLine) Say();
  }
  return !text.empty();
}

void RankOutput::SkipAhead() {
  if (!log_) return;
  const uint64_t size = log_->size();
  if (size < log_->at() + kBehind) return;
  const uint64_t to = size - kShown;
  if (!part_.empty()) Say();
  line_("... " + std::to_string(to - log_->at()) + " bytes of output are left out here ...");
  log_->SkipTo(to);
  cut_ = true;
}

void RankOutput::Follow(const std::filesystem::path& path) {
  if (path != path_) {
    Finish();
    path_ = path;
    log_.reset();
  }
  if (!log_) {
    auto file = std::make_shared<const RegularFile>(path_);
    if (!file->is_open()) return;  // not there yet
    log_.emplace(std::move(file), 0);
  }
  SkipAhead();
  Read();
}

void RankOutput::Finish() {
  SkipAhead();
  for (const uint64_t end = log_ ? log_->at() + kBehind : 0; log_ && log_->at() < end && Read();) continue;
  if (!part_.empty()) Say();
  log_.reset();
  path_.clear();
  cut_ = false;
}

}  // namespace trainyard::local
