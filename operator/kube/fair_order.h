// Keys in the order in which they are to be taken: by turns of their namespaces, and within one as they came.
#ifndef TRAINYARD_OPERATOR_KUBE_FAIR_ORDER_H_
#define TRAINYARD_OPERATOR_KUBE_FAIR_ORDER_H_

#include <deque>
#include <map>
#include <string>
#include <utility>

namespace trainyard::kube {

// A namespace whose thousand keys wait delays another's by as many keys as there are namespaces, not by a thousand. A
// key is "namespace/name"; without a slash, of one namespace with all others that have none. For one thread at a time.
class FairOrder {
 public:
  bool empty() const { return turns_.empty(); }

  void Push(const std::string& key) {
    const size_t slash = key.find('/');
    const std::string ns = slash == std::string::npos ? "" : key.substr(0, slash);
    std::deque<std::string>& keys = keys_[ns];
    if (keys.empty()) turns_.push_back(ns);
    keys.push_back(key);
  }

  // What Pop takes. REQUIRES: not empty().
  const std::string& Front() const { return keys_.at(turns_.front()).front(); }

  // REQUIRES: not empty().
  std::string Pop() {
    const std::string ns = std::move(turns_.front());
    turns_.pop_front();
    const auto keys = keys_.find(ns);
    std::string key = std::move(keys->second.front());
    keys->second.pop_front();
    if (keys->second.empty()) {
      keys_.erase(keys);
    } else {
      turns_.push_back(ns);
    }
    return key;
  }

 private:
  std::map<std::string, std::deque<std::string>> keys_;  // by namespace; none of them empty
  std::deque<std::string> turns_;                        // the namespaces that have keys
};

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_FAIR_ORDER_H_
