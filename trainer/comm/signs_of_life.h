// How ranks wait for each other outside collectives: as long as the one that is waited for gets on,
// however long that takes in total; a wait ends with its silence.
#ifndef TRAINYARD_TRAINER_COMM_SIGNS_OF_LIFE_H_
#define TRAINYARD_TRAINER_COMM_SIGNS_OF_LIFE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "trainer/comm/store.h"

namespace trainyard {

// Measures silence: whether a sign stayed the same for longer than the limit. Asked every second or so: of a longer
// time between two questions, in which this process stood still itself, two seconds count.
class Silence {
 public:
  using Time = std::chrono::steady_clock::time_point;
  Silence(std::chrono::duration<double> limit, Time start) : limit_(limit), since_(start) {}
  // The sign as it is now. True when it has not changed for longer than the limit.
  bool TooLong(const std::optional<std::string>& sign, Time now);

 private:
  std::chrono::duration<double> limit_;
  std::optional<std::string> sign_;
  Time since_, asked_ = since_;
};

// What is known of a rank's process, whatever its work does.
struct ProcessSign {
  std::optional<std::string> beat = {};  // the newest; nothing where none is known
  bool left = false;                     // it has said goodbye: it sets no key any more
};

// Whom a rank that waits takes for lost, and who hears that it gets on itself.
struct LifeOptions {
  // For how long a rank may say nothing of its work. A single write to slow storage is no longer than this.
  std::chrono::duration<double> silence = std::chrono::seconds(300);
  // Called with each beat that reaches the store, by whichever thread beats. May be empty.
  std::function<void()> alive = {};
  // What is known of a rank's process now. May be empty.
  std::function<ProcessSign(int rank)> pulse = {};
  // For how long a pulse that was heard may stop: that process is frozen, or its node is lost.
  std::chrono::duration<double> frozen = silence;
};

// Safe for any number of threads.
class SignsOfLife {
 public:
  // `stop` (may be empty) ends waiting and working with StoppedError.
  SignsOfLife(std::shared_ptr<Store> store, int rank, std::function<bool()> stop, LifeOptions life = {});

  // Says that this rank gets on: called by whatever may take long. Reaches the store once a second at
  // most. Throws StoppedError.
  void Beat();
  // Waits until the rank `from` has set `key`. This rank counts as getting on as long as that one does.
  // `what` completes "rank 0 waited for ...". Throws PeerError after the silence or where the other is frozen
  // or has left, StoppedError.
  std::string Wait(const std::string& key, int from, const std::string& what);
  // The others of a world of `size` of whom no new sign comes for that long. Returns as soon as all have given one.
  std::vector<int> Silent(int size, std::chrono::duration<double> listen) const;

  // The newest of a rank's signs in this store; nothing where it has given none.
  static std::optional<std::string> SignIn(Store& store, int rank);

 private:
  void ThrowIfStopped(const std::string& doing) const;
  [[noreturn]] void GiveUp(const std::string& what, const std::string& why) const;

  std::shared_ptr<Store> store_;
  const int rank_;
  const std::function<bool()> stop_;
  const LifeOptions life_;
  std::mutex mutex_;
  std::optional<std::chrono::steady_clock::time_point> last_;  // beat
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_COMM_SIGNS_OF_LIFE_H_
