// Collectives over NCCL: one communicator, one stream, and a thread that watches both.
#ifndef TRAINYARD_TRAINER_CUDA_NCCL_COLLECTIVES_H_
#define TRAINYARD_TRAINER_CUDA_NCCL_COLLECTIVES_H_

#include <cuda_runtime_api.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "trainer/comm/collectives.h"
#include "trainer/comm/flight_recorder.h"
#include "trainer/comm/store.h"

namespace trainyard {

struct NcclOptions {
  int rank = 0, size = 1;
  int device = 0;
  std::chrono::duration<double> rendezvous_timeout{300};
  std::chrono::duration<double> collective_timeout{600};
  // What the calling thread enqueues on.
  std::function<cudaStream_t()> current_stream;
  // Asked when a collective is overdue, from the watching thread: a sentence. May be empty.
  std::function<std::string()> who_is_silent = {};
  // When NCCL does not let go of a communicator that failed, what waits for the device waits for ever, and only the end
  // of the process ends that. Gets the failure. May be empty.
  std::function<void(const std::string& failure)> stuck = {};
  std::chrono::duration<double> abort_timeout{10};  // until then it is not stuck
  FlightRecorder* recorder = nullptr;               // where collectives are noted, as of `group`; may be null
  std::string group = {};
};

// Connects to every other rank through keys of `store` that nobody else uses: rank 0 sets NCCL's id, and the
// communicator is made without blocking (NCCL's `blocking = 0`), so that nothing here waits longer than the deadlines.
// Throws PeerError when a rank does not come in time, ConfigError for ranks that share a GPU.
//
// Wait orders what the caller enqueues afterwards behind the collective, and the host goes on. So a failure may come
// later: it is thrown by every call that is made after it has come about, and once the host has waited for its stream,
// by Wait with any ticket, which may be one that was waited for before.
//
// A failure that NCCL reports (ncclCommGetAsyncError), a collective that takes longer than its deadline, or an error of
// the device ends everything: it becomes what every later call throws, and then the communicator is aborted, which ends
// its kernels, and with them whoever waits for the device. The deadline of a collective begins when the one before it
// is over. https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/comms.html
std::unique_ptr<Collectives> MakeNcclCollectives(std::shared_ptr<Store> store, const NcclOptions& options);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_CUDA_NCCL_COLLECTIVES_H_
