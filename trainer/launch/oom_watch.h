// Whether a rank that SIGKILL has ended was killed by the kernel, for want of memory: nothing tells it but a count.
#ifndef TRAINYARD_TRAINER_LAUNCH_OOM_WATCH_H_
#define TRAINYARD_TRAINER_LAUNCH_OOM_WATCH_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>

namespace trainyard {

class OomWatch {
 public:
  using Count = std::function<std::optional<uint64_t>()>;
  // `count`: how many processes the kernel has killed so far (OomKillCounter); nothing: nobody knows.
  explicit OomWatch(const Count& count);

  // Looks at the count, once a second. `now`: steady seconds.
  void Look(double now);
  // Whether one that the kernel has killed within half a minute may be the process that SIGKILL has ended: so long it
  // may take to give back its memory, and its devices. Each that was counted explains one.
  bool Explains(double now);

 private:
  void Note(double now);

  const Count count_;
  std::optional<uint64_t> last_;
  double looked_ = 0;
  std::deque<double> killed_;  // when those that explain nobody yet were found in the count
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_LAUNCH_OOM_WATCH_H_
