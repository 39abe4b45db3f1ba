// Says once a second that this rank's process runs, whatever its step does, so that a collective that
// nobody answers can name the rank that is frozen or lost.
#ifndef TRAINYARD_TRAINER_COMM_PULSE_H_
#define TRAINYARD_TRAINER_COMM_PULSE_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "trainer/comm/signs_of_life.h"
#include "trainer/comm/store.h"

namespace trainyard {

class Pulse {
 public:
  // Beats until it is destroyed, or until the store is gone.
  Pulse(std::shared_ptr<Store> store, int rank, int size);
  ~Pulse();
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;

  // Listens to the other ranks for a few seconds at most: "rank 1 gives no sign of life: ...". Never throws.
  // Safe for any number of threads.
  std::string Verdict() const;

 private:
  SignsOfLife signs_;
  const int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_COMM_PULSE_H_
