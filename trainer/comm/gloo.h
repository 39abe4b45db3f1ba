// Collectives over Gloo, through c10d: CPU ranks on any number of machines.
#ifndef TRAINYARD_TRAINER_COMM_GLOO_H_
#define TRAINYARD_TRAINER_COMM_GLOO_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "trainer/comm/communicator.h"
#include "trainer/comm/store.h"

namespace trainyard {

struct GlooOptions {
  int rank = 0, size = 1;
  std::string interface;  // this rank's address, as other ranks reach it
  std::chrono::duration<double> rendezvous_timeout{300};
  std::chrono::duration<double> collective_timeout{600};
  // Asked when a collective was not answered in time, from the communicator's thread: a sentence. May be empty.
  std::function<std::string()> who_is_silent = {};
  // Where collectives are noted, as of `group`; may be null.
  FlightRecorder* recorder = nullptr;
  std::string group = {};
};

// Connects to every other rank, through keys of `store` that nobody else uses. Throws PeerError when one does not come
// in time. Its port takes connections only until then: nothing else of this process begins to listen in this call.
std::unique_ptr<Communicator> MakeGlooCommunicator(std::shared_ptr<Store> store, const GlooOptions& options);

// What one of them holds for its collectives, beside the tensors, at most.
int64_t GlooBufferBytes(int size);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_COMM_GLOO_H_
