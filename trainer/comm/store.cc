#include "trainer/comm/store.h"

#include "trainer/base/error.h"
#include "trainer/comm/patience.h"

namespace trainyard {

std::string Store::Wait(const std::string& key, std::chrono::duration<double> deadline, const std::string& what,
                        const std::function<bool()>& stop) {
  Patience patience(deadline, what, stop);
  for (;;) {
    if (std::optional<std::string> value = Get(key)) return *value;
    try {
      CheckWorld();
    } catch (const PeerError&) {
      // It may have set the key and ended between our two questions.
      if (std::optional<std::string> value = Get(key)) return *value;
      throw;
    }
    patience.Pause();
  }
}

void MemoryStore::Set(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  values_[key] = value;
}

std::optional<std::string> MemoryStore::Get(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto it = values_.find(key);
  return it == values_.end() ? std::nullopt : std::optional(it->second);
}

int64_t MemoryStore::Add(const std::string& key, int64_t amount) {
  const std::lock_guard lock(mutex_);
  std::string& value = values_[key];
  const int64_t sum = (value.empty() ? 0 : std::stoll(value)) + amount;
  value = std::to_string(sum);
  return sum;
}

void MemoryStore::Delete(const std::string& key) {
  const std::lock_guard lock(mutex_);
  values_.erase(key);
}

size_t MemoryStore::size() const {
  const std::lock_guard lock(mutex_);
  return values_.size();
}

}  // namespace trainyard
