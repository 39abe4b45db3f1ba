// Collectives over Gloo, through c10d: CPU ranks on any number of machines.
#ifndef TRAINYARD_TRAINER_COMM_GLOO_H_
#define TRAINYARD_TRAINER_COMM_GLOO_H_

#include <cstdint>
#include <memory>

#include "trainer/comm/communicator.h"
#include "trainer/comm/connect_options.h"
#include "trainer/comm/store.h"

namespace trainyard {

// Once, before the process has threads. c10d's flight recorder is one for all groups of a process, and two groups that
// record at the same time corrupt its memory (seen of 2.11: two broadcasts). Ours is comm/flight_recorder.h.
void KeepNoRecordsOfC10d();

// Connects to every other rank, through keys of `store` that nobody else uses. Throws PeerError when one does not come
// in time. Its port takes connections only until then: nothing else of this process begins to listen in this call.
// Never `stuck`: Gloo's own deadline ends what waits.
std::unique_ptr<Communicator> MakeGlooCommunicator(std::shared_ptr<Store> store, const ConnectOptions& options);

// What one of them holds for its collectives, beside the tensors, at most.
int64_t GlooBufferBytes(int size);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_COMM_GLOO_H_
