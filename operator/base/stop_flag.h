// A stop that ends waits: a flag that poll() can see as well.
#ifndef TRAINYARD_OPERATOR_BASE_STOP_FLAG_H_
#define TRAINYARD_OPERATOR_BASE_STOP_FLAG_H_

#include <atomic>

namespace trainyard {

// Thread-safe. Set once, and never taken back.
class StopFlag {
 public:
  StopFlag();
  ~StopFlag();
  StopFlag(const StopFlag&) = delete;
  StopFlag& operator=(const StopFlag&) = delete;

  void Set();
  bool set() const { return set_.load(); }
  explicit operator bool() const { return set(); }
  // Readable from Set on; for poll(). -1 when the machine has no descriptor left: waits then look at set()
  // every half second.
  int descriptor() const { return descriptor_; }

  // Waits. False, at once, when the stop is set before the time is over.
  bool Sleep(double seconds) const;

 private:
  std::atomic<bool> set_{false};
  int descriptor_;
};

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_BASE_STOP_FLAG_H_
