// The key-value store through which ranks find and tell each other things outside collectives.
#ifndef TRAINYARD_TRAINER_COMM_STORE_H_
#define TRAINYARD_TRAINER_COMM_STORE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace trainyard {

// Safe for any number of threads. Every call may throw PeerError when the host of the store is gone, or does not answer
// for so long as the store waits for it (C10dStoreOptions::answer); what it was to change may then change all the same.
class Store {
 public:
  virtual ~Store() = default;
  virtual void Set(const std::string& key, const std::string& value) = 0;
  // Nothing when nobody has set the key; it is not waited for.
  virtual std::optional<std::string> Get(const std::string& key) = 0;
  // Adds to an integer (absent: 0) and returns the sum.
  virtual int64_t Add(const std::string& key, int64_t amount) = 0;
  // Forgets a key that nobody asks for any more. One that is not there is fine.
  virtual void Delete(const std::string& key) = 0;

  // Throws PeerError when those who would set a key cannot come any more (gathering.h); asked while
  // something waits.
  virtual void CheckWorld() {}

  // Waits until the key is set. `what` completes "waited 30s for ...". Throws PeerError at the
  // deadline and where CheckWorld and Get do, and StoppedError as soon as `stop` (may be empty) returns
  // true; a key that was set before is always returned.
  std::string Wait(const std::string& key, std::chrono::duration<double> deadline, const std::string& what,
                   const std::function<bool()>& stop = {});
};

// A store within one process: for a world of one and for tests.
class MemoryStore : public Store {
 public:
  void Set(const std::string& key, const std::string& value) override;
  std::optional<std::string> Get(const std::string& key) override;
  int64_t Add(const std::string& key, int64_t amount) override;
  void Delete(const std::string& key) override;
  size_t size() const;  // keys

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::string> values_;
};

// Another store's keys under a prefix.
class PrefixStore : public Store {
 public:
  PrefixStore(std::shared_ptr<Store> store, std::string prefix)
      : store_(std::move(store)), prefix_(std::move(prefix)) {}
  void Set(const std::string& key, const std::string& value) override { store_->Set(prefix_ + key, value); }
  std::optional<std::string> Get(const std::string& key) override { return store_->Get(prefix_ + key); }
  int64_t Add(const std::string& key, int64_t amount) override { return store_->Add(prefix_ + key, amount); }
  void Delete(const std::string& key) override { store_->Delete(prefix_ + key); }
  void CheckWorld() override { store_->CheckWorld(); }

 private:
  std::shared_ptr<Store> store_;
  std::string prefix_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_COMM_STORE_H_
