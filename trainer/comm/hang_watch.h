// What ranks do when a collective does not end within its deadline: they tell each other where they stand, through the
// store, and one of them says whom all of them wait for.
#ifndef TRAINYARD_TRAINER_COMM_HANG_WATCH_H_
#define TRAINYARD_TRAINER_COMM_HANG_WATCH_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "trainer/base/abandonable_thread.h"
#include "trainer/comm/flight_recorder.h"
#include "trainer/comm/store.h"

namespace trainyard {

class HangWatch {
 public:
  // For whom looks once a second whether it is asked, on a crowded machine.
  static constexpr std::chrono::seconds kAnswer{4};

  // `store`: keys that nobody else uses. `named` is called, on a thread of the watch's, on a rank that the verdict
  // names, with its sentence: this rank's step stands still, so that nothing else could end it. Never once the watch
  // is gone, whose destruction waits for it.
  HangWatch(std::shared_ptr<Store> store, int rank, int size, std::function<void(const std::string&)> named);
  // Takes a second at most, and as long as `named` does; what the store has not answered is left behind.
  ~HangWatch();
  HangWatch(const HangWatch&) = delete;
  HangWatch& operator=(const HangWatch&) = delete;

  FlightRecorder& recorder();

  // Asks every rank where it stands, without waiting for it. Never throws. Safe for any number of threads.
  void Ask();
  // A collective of this rank's is overdue: the verdict, the same for all who ask, or nothing where a rank does not
  // answer within `patience` or all of them have come. Never throws. Safe for any number of threads.
  std::string Explain(std::chrono::duration<double> patience = kAnswer);

 private:
  struct Shared;

  std::shared_ptr<Shared> shared_;  // the thread's as well
  AbandonableThread thread_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_COMM_HANG_WATCH_H_
