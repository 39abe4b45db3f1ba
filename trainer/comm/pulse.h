// Says once a second that this rank's process runs, whatever its step does, so that a collective that
// nobody answers, or a wait for another rank's files, can name the rank that is frozen or lost.
#ifndef TRAINYARD_TRAINER_COMM_PULSE_H_
#define TRAINYARD_TRAINER_COMM_PULSE_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trainer/base/abandonable_thread.h"
#include "trainer/comm/signs_of_life.h"
#include "trainer/comm/store.h"

namespace trainyard {

class Pulse {
 public:
  // Beats until it is destroyed, as often as the store answers; then says that this rank left.
  Pulse(std::shared_ptr<Store> store, int rank, int size);
  // Takes a second at most; a beat that the store has not answered is left behind.
  ~Pulse();
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;

  struct Quiet {
    std::string sentence;  // "rank 1 gives no sign of life: ..."
    bool left = false;     // "rank 1 has ended since": it said so, and all others live
  };
  // Listens to the store and to the other ranks for a few seconds each. Nothing where all of them live. Never throws.
  // Safe for any number of threads.
  std::optional<Quiet> Silence() const;

  // How many seconds Silence listens to the ranks: a living one is heard in less.
  static const std::chrono::duration<double> kListen;
  // What ranks say of themselves in this store, as LifeOptions::pulse has it.
  static std::function<ProcessSign(int rank)> Of(std::shared_ptr<Store> store);

 private:
  struct Shared;

  const int size_;
  std::shared_ptr<Shared> shared_;  // the thread's as well
  AbandonableThread thread_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_COMM_PULSE_H_
