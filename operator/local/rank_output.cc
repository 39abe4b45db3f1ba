#include "operator/local/rank_output.h"

namespace trainyard::local {
namespace {

constexpr size_t kLongestLine = 64 << 10;
constexpr int kLastReads = 16;

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
    if (c != '\n') part_ += c;
    if (c == '\n' || part_.size() >= kLongestLine) Say();
  }
  return !text.empty();
}

void RankOutput::Follow(const std::filesystem::path& path) {
  if (path != path_) {
    Finish();
    path_ = path;
    log_.reset();
  }
  if (!log_) {
    auto file = std::make_shared<std::ifstream>(path_, std::ios::binary);
    if (!file->is_open()) return;  // not there yet
    log_.emplace(std::move(file));
  }
  Read();
}

void RankOutput::Finish() {
  for (int i = 0; i < kLastReads && Read(); ++i) continue;
  if (!part_.empty()) Say();
}

}  // namespace trainyard::local
