// What the reflector has seen: records by "namespace/name", and by an index key.
#ifndef TRAINYARD_OPERATOR_KUBE_STORE_H_
#define TRAINYARD_OPERATOR_KUBE_STORE_H_

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
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
  // that `project` throws on: it is not kept, and the others are; `listed`, if any, in `changed`'s place of what came
  // or went with a whole list.
  Store(std::function<Record(const nlohmann::json&)> project, std::function<std::string(const Record&)> index_key,
        std::function<void(const std::string&)> changed, SkippedFunction skipped = {},
        const std::function<void(const std::string&)>& listed = {})
      : project_(std::move(project)),
        index_key_(std::move(index_key)),
        changed_(std::move(changed)),
        listed_(listed ? listed : changed_),
        skipped_(std::move(skipped)) {}

  Pointer Get(const std::string& key) const {
    const MutexLock lock(mutex_);
    const auto found = shelf_.records.find(key);
    return found == shelf_.records.end() ? nullptr : found->second.record;
  }
  // In the order of their keys.
  std::vector<Pointer> Indexed(const std::string& index_key) const {
    const MutexLock lock(mutex_);
    std::vector<Pointer> out;
    const auto found = shelf_.index.find(index_key);
    if (found == shelf_.index.end()) return out;
    out.reserve(found->second.size());
    for (const auto& record : found->second) out.push_back(record->second.record);
    return out;
  }
  // How many those are.
  size_t CountIndexed(const std::string& index_key) const {
    const MutexLock lock(mutex_);
    const auto found = shelf_.index.find(index_key);
    return found == shelf_.index.end() ? 0 : found->second.size();
  }
  std::vector<std::string> Keys() const {
    const MutexLock lock(mutex_);
    std::vector<std::string> keys;
    for (const auto& [key, entry] : shelf_.records) keys.push_back(key);
    return keys;
  }
  size_t size() const {
    const MutexLock lock(mutex_);
    return shelf_.records.size();
  }

  // How often an object was skipped.
  int64_t skips() const {
    const MutexLock lock(mutex_);
    return skips_;
  }

  // ReflectorSink. What the new set lacks counts as deleted, and so does an object whose uid changed.
  void Begin() override {
    const MutexLock lock(mutex_);
    staged_ = {};
  }
  void Stage(const nlohmann::json& object) override {
    const MutexLock lock(mutex_);
    const std::string key = ObjectKey(object);
    Erase(staged_, key);
    Put(staged_, key, object);
  }
  void Unstage(const nlohmann::json& object) override {
    const MutexLock lock(mutex_);
    Erase(staged_, ObjectKey(object));
  }
  void Swap() override {
    std::set<std::string> touched;
    Shelf old;  // is freed outside the lock
    {
      const MutexLock lock(mutex_);
      old = std::exchange(shelf_, std::exchange(staged_, {}));
      for (const Shelf* shelf : {&old, &shelf_}) {
        for (const auto& record : shelf->records) touched.insert(Heard(record));
      }
    }
    for (const std::string& key : touched) listed_(key);
  }
  void Upsert(const nlohmann::json& object) override {
    std::string before, key;
    {
      const MutexLock lock(mutex_);
      before = Erase(shelf_, ObjectKey(object));
      key = Put(shelf_, ObjectKey(object), object);
    }
    if (!before.empty() && before != key) changed_(before);
    if (!key.empty()) changed_(key);
  }
  void Remove(const nlohmann::json& object) override {
    std::string key;
    {
      const MutexLock lock(mutex_);
      key = Erase(shelf_, ObjectKey(object));
    }
    if (!key.empty()) changed_(key);
  }

 private:
  struct Entry {
    Pointer record;
    const std::string* index = nullptr;  // a key of Shelf::index; null: under none
  };
  using Records = std::map<std::string, Entry>;
  struct ByKey {
    bool operator()(typename Records::iterator a, typename Records::iterator b) const { return a->first < b->first; }
  };
  // Neither a key nor an index key is there twice: of thousands of records they would be the larger part.
  struct Shelf {
    Records records;
    std::map<std::string, std::set<typename Records::iterator, ByKey>> index;
  };
  static const std::string& Heard(const typename Records::value_type& record) {
    return record.second.index ? *record.second.index : record.first;
  }
  // Who should hear of it; empty when it was skipped. REQUIRES: `key` is not there.
  std::string Put(Shelf& shelf, const std::string& key, const nlohmann::json& object) REQUIRES_LOCK(mutex_) {
    Pointer record = Project(key, object);
    if (!record) return "";
    const std::string index = index_key_(*record);
    const auto placed = shelf.records.emplace(key, Entry{std::move(record)}).first;
    if (!index.empty()) {
      const auto under = shelf.index.try_emplace(index).first;
      under->second.insert(placed);
      placed->second.index = &under->first;
    }
    return Heard(*placed);
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
  std::string Erase(Shelf& shelf, const std::string& key) REQUIRES_LOCK(mutex_) {
    const auto found = shelf.records.find(key);
    if (found == shelf.records.end()) return "";
    std::string heard = Heard(*found);
    if (found->second.index) {
      const auto under = shelf.index.find(heard);
      under->second.erase(found);
      if (under->second.empty()) shelf.index.erase(under);
    }
    shelf.records.erase(found);
    return heard;
  }

  const std::function<Record(const nlohmann::json&)> project_;
  const std::function<std::string(const Record&)> index_key_;
  const std::function<void(const std::string&)> changed_, listed_;
  const SkippedFunction skipped_;
  mutable Mutex mutex_;
  int64_t skips_ GUARDED_BY(mutex_) = 0;
  Shelf shelf_ GUARDED_BY(mutex_), staged_ GUARDED_BY(mutex_);
};

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_STORE_H_
