// The manners of everything that waits for other processes: it obeys a stop, gives up at a deadline,
// and says what it waits for.
#ifndef TRAINYARD_TRAINER_COMM_PATIENCE_H_
#define TRAINYARD_TRAINER_COMM_PATIENCE_H_

#include <chrono>
#include <functional>
#include <string>

namespace trainyard {

enum class Voice { kSilent, kNowAndThen };

// One wait of one thread.
class Patience {
 public:
  // `what` completes "waiting for ...". `stop` may be empty.
  Patience(std::chrono::duration<double> deadline, std::string what, std::function<bool()> stop,
           Voice voice = Voice::kSilent);

  // Throws StoppedError when a stop is requested.
  void CheckStop() const;
  // Sleeps a moment, longer each time up to 20 ms. kNowAndThen: after five seconds, then every
  // thirty, a line on standard error says what is waited for. Throws StoppedError, and PeerError at
  // the deadline. `problem`, if there is one, says what is missing, and completes both messages.
  void Pause(const std::function<std::string()>& problem = {});

 private:
  using Clock = std::chrono::steady_clock;
  const std::chrono::duration<double> deadline_;
  const std::string what_;
  const std::function<bool()> stop_;
  const Voice voice_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point next_word_ = start_ + std::chrono::seconds(5);
  std::chrono::microseconds pause_{200};
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_COMM_PATIENCE_H_
