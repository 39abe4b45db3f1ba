#include "operator/reconcile/own_writes.h"

#include <cstdlib>

namespace trainyard::reconcile {
namespace {

uint64_t Number(const std::string& version) { return std::strtoull(version.c_str(), nullptr, 10); }

}  // namespace

void OwnWrites::Note(const std::string& key, const std::string& version, int64_t rewinds) {
  const MutexLock lock(mutex_);
  written_[key] = {.version = Number(version), .rewinds = rewinds, .at = clock_.Steady()};
}

bool OwnWrites::IsAhead(const std::string& key, const std::string& version, int64_t rewinds) const {
  const MutexLock lock(mutex_);
  const auto found = written_.find(key);
  return found != written_.end() && found->second.rewinds == rewinds && Number(version) < found->second.version;
}

std::optional<double> OwnWrites::Since(const std::string& key) const {
  const MutexLock lock(mutex_);
  const auto found = written_.find(key);
  if (found == written_.end()) return std::nullopt;
  return SecondsBetween(found->second.at, clock_.Steady());
}

void OwnWrites::Forget(const std::string& key) {
  const MutexLock lock(mutex_);
  written_.erase(key);
}

}  // namespace trainyard::reconcile
