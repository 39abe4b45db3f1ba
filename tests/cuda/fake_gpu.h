// CUDA's runtime and NCCL, as far as trainer/cuda/nccl_collectives.cc calls them, without a GPU: streams are threads,
// events are flags, device memory is host memory, and ranks are threads of this process. Faults are scripted.
//
// What it cannot show: that NCCL itself behaves so. Its rules are those of NCCL's documentation.
#ifndef TRAINYARD_TESTS_CUDA_FAKE_GPU_H_
#define TRAINYARD_TESTS_CUDA_FAKE_GPU_H_

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace fake_gpu {

struct Fault {
  std::chrono::milliseconds latency{0};  // of the collective, on the device
  bool hangs = false;                    // its kernel ends with an abort only
  ncclResult_t async = ncclSuccess;      // what the communicator then reports, while the kernel hangs
  ncclResult_t enqueue = ncclSuccess;    // what the call returns
  int polls = 0;                         // as often the call is still in progress
};

struct Script {
  std::map<std::pair<int, uint64_t>, Fault> faults;  // of (rank, number of the collective from 0)
  int polls = 3;                                     // as often the initialisation is in progress once all have come
  bool abort_hangs = false;
  bool peers_notice_abort = false;  // their communicators report ncclRemoteError
};

// Forgets what was before. No communicator may be left.
void Reset(Script script = {});
// What was called, in order: "init 0", "enqueue 0 all_reduce", "abort 1", "finalize 0", "destroy 0".
std::vector<std::string> Calls();
// Lets go of aborts that hang.
void ReleaseAborts();

// Runs `work` on a stream, behind what it was given before.
void Launch(cudaStream_t stream, std::function<void()> work);

}  // namespace fake_gpu

#endif  // TRAINYARD_TESTS_CUDA_FAKE_GPU_H_
