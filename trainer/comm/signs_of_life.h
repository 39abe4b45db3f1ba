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

// Measures silence: whether a sign stayed the same for longer than the limit.
class Silence {
 public:
  using Time = std::chrono::steady_clock::time_point;
  Silence(std::chrono::duration<double> limit, Time start) : limit_(limit), since_(start) {}
  // The sign as it is now. True when it has not changed for longer than the limit.
  bool TooLong(const std::optional<std::string>& sign, Time now);

 private:
  std::chrono::duration<double> limit_;
  std::optional<std::string> sign_;
  Time since_;
};

// Safe for any number of threads.
class SignsOfLife {
 public:
  // How long nothing may be heard of a rank, unless said otherwise.
  static constexpr std::chrono::seconds kSilence{300};

  // `stop` (may be empty) ends waiting and working with StoppedError. `alive` (may be empty) is called with each beat
  // that reaches the store, by whichever thread beats.
  SignsOfLife(std::shared_ptr<Store> store, int rank, std::function<bool()> stop,
              std::chrono::duration<double> silence = kSilence, std::function<void()> alive = {});

  // Says that this rank gets on: called by whatever may take long. Reaches the store once a second at
  // most. Throws StoppedError.
  void Beat();
  // Waits until the rank `from` has set `key`. This rank counts as getting on as long as that one does.
  // `what` completes "rank 0 waited for ...". Throws PeerError after the silence, StoppedError.
  std::string Wait(const std::string& key, int from, const std::string& what);
  // The others of a world of `size` of whom no new sign comes for that long. Returns as soon as all have given one.
  std::vector<int> Silent(int size, std::chrono::duration<double> listen) const;

 private:
  void ThrowIfStopped(const std::string& doing) const;

  std::shared_ptr<Store> store_;
  const int rank_;
  const std::function<bool()> stop_;
  const std::chrono::duration<double> silence_;
  const std::function<void()> alive_;
  std::mutex mutex_;
  std::optional<std::chrono::steady_clock::time_point> last_;  // beat
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_COMM_SIGNS_OF_LIFE_H_
