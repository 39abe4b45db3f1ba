#include "trainer/config/mistakes.h"

#include <algorithm>

#include "trainer/base/error.h"

namespace trainyard {
namespace {

constexpr size_t kMostTold = 10;

}  // namespace

void Mistakes::Note(const std::function<void()>& look) {
  if (found_.size() > kMostTold) return;
  try {
    look();
  } catch (const ConfigError& error) {
    if (std::find(found_.begin(), found_.end(), error.what()) == found_.end()) found_.emplace_back(error.what());
  }
}

void Mistakes::Throw() const {
  if (found_.empty()) return;
  std::string text = found_.front();
  // A container's log may be asked for its last line alone: that is a mistake, too.
  for (size_t i = 1; i < std::min(found_.size(), kMostTold); ++i) text += "\n" + found_[i];
  if (found_.size() > kMostTold) text += " (and more)";
  throw ConfigError(text);
}

}  // namespace trainyard
