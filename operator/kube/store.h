// What the reflector has seen: records by "namespace/name", and by an index key.
#ifndef TRAINYARD_OPERATOR_KUBE_STORE_H_
#define TRAINYARD_OPERATOR_KUBE_STORE_H_

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "operator/base/mutex.h"
#include "operator/kube/reflector.h"

namespace trainyard::kube {

// Told the key of an object that no record could be made of, and why. Must not call the store.
using SkippedFunction = std::function<void(const std::string& key, const std::string& why)>;

// Thread-safe. Record is what is kept of an object: the less, the smaller the operator.
template <class Record>
class Store : public ReflectorSink {
 public:
  using Pointer = std::shared_ptr<const Record>;
  // `project` makes the record of an object; `index_key` says under which key it is found (a pod under
  // its job's), empty: under none; `changed` hears of the index key (or, without one, the object's
  // key) of whatever appears, changes or goes, outside the lock; `skipped`, if any, of an object (key, why)
  // that `project` throws on: it is not kept, and the others are.
  Store(std::function<Record(const nlohmann::json&)> project, std::function<std::string(const Record&)> index_key,
        std::function<void(const std::string&)> changed, SkippedFunction skipped = {})
      : project_(std::move(project)),
        index_key_(std::move(index_key)),
        changed_(std::move(changed)),
        skipped_(std::move(skipped)) {}

  Pointer Get(const std::string& key) const {
    const MutexLock lock(mutex_);
    const auto found = records_.find(key);
    return found == records_.end() ? nullptr : found->second.record;
  }
  std::vector<Pointer> Indexed(const std::string& index_key) const {
    const MutexLock lock(mutex_);
    std::vector<Pointer> out;
    const auto keys = index_.find(index_key);
    if (keys == index_.end()) return out;
    for (const std::string& key : keys->second) out.push_back(records_.at(key).record);
    return out;
  }
  std::vector<std::string> Keys() const {
    const MutexLock lock(mutex_);
    std::vector<std::string> keys;
    for (const auto& [key, entry] : records_) keys.push_back(key);
    return keys;
  }
  size_t size() const {
    const MutexLock lock(mutex_);
    return records_.size();
  }

  // How often an object was skipped.
  int64_t skips() const {
    const MutexLock lock(mutex_);
    return skips_;
  }

  // ReflectorSink. What the new list lacks counts as deleted, and so does an object whose uid changed.
  void Replace(const std::vector<nlohmann::json>& objects) override {
    std::set<std::string> touched;
    {
      const MutexLock lock(mutex_);
      std::map<std::string, Entry> old;
      old.swap(records_);
      index_.clear();
      for (const auto& [key, entry] : old) touched.insert(entry.index.empty() ? key : entry.index);
      for (const nlohmann::json& object : objects) touched.insert(Put(object));
    }
    touched.erase("");
    for (const std::string& key : touched) changed_(key);
  }
  void Upsert(const nlohmann::json& object) override {
    std::string before, key;
    {
      const MutexLock lock(mutex_);
      before = Erase(ObjectKey(object));
      key = Put(object);
    }
    if (!before.empty() && before != key) changed_(before);
    if (!key.empty()) changed_(key);
  }
  void Remove(const nlohmann::json& object) override {
    std::string key;
    {
      const MutexLock lock(mutex_);
      key = Erase(ObjectKey(object));
    }
    if (!key.empty()) changed_(key);
  }

 private:
  struct Entry {
    Pointer record;
    std::string index;
  };
  // Who should hear of it; empty when it was skipped.
  std::string Put(const nlohmann::json& object) REQUIRES_LOCK(mutex_) {
    const std::string key = ObjectKey(object);
    const Pointer record = Project(key, object);
    if (!record) return "";
    std::string index = index_key_(*record);
    if (!index.empty()) index_[index].insert(key);
    records_[key] = {record, index};
    return index.empty() ? key : index;
  }
  // Anyone may write objects, and a defect of ours in reading one shall not end the thread that reads all.
  Pointer Project(const std::string& key, const nlohmann::json& object) REQUIRES_LOCK(mutex_) {
    try {
      return std::make_shared<const Record>(project_(object));
    } catch (const std::exception& error) {
      ++skips_;
      if (skipped_) skipped_(key, error.what());
      return nullptr;
    }
  }
  // Who should hear of it; empty when there was nothing.
  std::string Erase(const std::string& key) REQUIRES_LOCK(mutex_) {
    const auto found = records_.find(key);
    if (found == records_.end()) return "";
    std::string index = found->second.index;
    records_.erase(found);
    if (index.empty()) return key;
    if (auto keys = index_.find(index); keys != index_.end()) {
      keys->second.erase(key);
      if (keys->second.empty()) index_.erase(keys);
    }
    return index;
  }

  const std::function<Record(const nlohmann::json&)> project_;
  const std::function<std::string(const Record&)> index_key_;
  const std::function<void(const std::string&)> changed_;
  const SkippedFunction skipped_;
  mutable Mutex mutex_;
  int64_t skips_ GUARDED_BY(mutex_) = 0;
  std::map<std::string, Entry> records_ GUARDED_BY(mutex_);
  std::map<std::string, std::set<std::string>> index_ GUARDED_BY(mutex_);
};

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_STORE_H_
