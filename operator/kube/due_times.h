// Keys, each with the time from which on it is to be worked on.
#ifndef TRAINYARD_OPERATOR_KUBE_DUE_TIMES_H_
#define TRAINYARD_OPERATOR_KUBE_DUE_TIMES_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "operator/base/clock.h"

namespace trainyard::kube {

// What a call costs grows with the logarithm of the keys: there is one for each job of a cluster. For one thread at a
// time.
class DueTimes {
 public:
  // Of several times of a key the earliest counts. Whether `due` is that.
  bool Add(const std::string& key, Instant due) {
    const auto [entry, added] = of_.try_emplace(key, due);
    if (!added && entry->second <= due) return false;
    if (!added) order_.erase({entry->second, key});
    entry->second = due;
    order_.emplace(due, key);
    return true;
  }

  void Erase(const std::string& key) {
    const auto entry = of_.find(key);
    if (entry == of_.end()) return;
    order_.erase({entry->second, key});
    of_.erase(entry);
  }

  // The earliest; nothing when no key has a time.
  std::optional<Instant> Next() const {
    if (order_.empty()) return std::nullopt;
    return order_.begin()->first;
  }

  // Takes the key out whose time is the earliest; nothing when that is behind `now`.
  std::optional<std::pair<std::string, Instant>> Pop(Instant now) {
    if (order_.empty() || order_.begin()->first > now) return std::nullopt;
    auto [due, key] = *order_.begin();
    order_.erase(order_.begin());
    of_.erase(key);
    return std::pair(std::move(key), due);
  }

 private:
  std::map<std::string, Instant> of_;
  std::set<std::pair<Instant, std::string>> order_;
};

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_DUE_TIMES_H_
