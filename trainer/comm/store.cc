#include "trainer/comm/store.h"

#include <algorithm>
#include <thread>

#include "trainer/base/error.h"
#include "trainer/base/text.h"

namespace trainyard {

std::string Store::Wait(const std::string& key, std::chrono::duration<double> deadline, const std::string& what,
                        const std::function<bool()>& stop) {
  const auto start = std::chrono::steady_clock::now();
  auto pause = std::chrono::microseconds(200);
  for (;;) {
    if (std::optional<std::string> value = Get(key)) return *value;
    if (stop && stop()) throw StoppedError("stopped on request while waiting for " + what);
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    if (waited > deadline) throw PeerError("waited " + HumanSeconds(deadline.count()) + " for " + what);
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(20000));
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

}  // namespace trainyard
