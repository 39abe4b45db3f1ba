// Whether a rank that SIGKILL has ended was killed by the kernel, for want of memory: nothing tells it but a count.
#ifndef TRAINYARD_TRAINER_LAUNCH_OOM_WATCH_H_
#define TRAINYARD_TRAINER_LAUNCH_OOM_WATCH_H_

#include <cstdint>
#include <functional>
#include <optional>

namespace trainyard {

// The kernel counts before it kills. What it killed long before is no word about a rank that ends now.
class OomWatch {
 public:
  using Count = std::function<std::optional<uint64_t>()>;
  // `count`: how many it has killed so far (CountOomKills); nothing: nobody knows.
  explicit OomWatch(Count count) : count_(std::move(count)), before_(count_()), last_(before_) {}

  // Looks, once a second. `now`: steady seconds.
  void Look(double now);
  // Whether it has killed any since the look before the last one.
  bool HasKilled() const;

 private:
  const Count count_;
  std::optional<uint64_t> before_, last_;
  double looked_ = 0;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_LAUNCH_OOM_WATCH_H_
