#include "tests/cuda/fake_gpu.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace {

using fake_gpu::Fault;

// Of everything here; never destroyed, since the stream of an abort that hangs is left behind with its thread.
std::mutex& mutex = *new std::mutex;
std::condition_variable& changed = *new std::condition_variable;
fake_gpu::Script script;
std::vector<std::string> calls;
bool aborts_released = false;
int next_id = 0;

template <class F>
void WaitUntil(std::unique_lock<std::mutex>& lock, F done) {
  changed.wait(lock, done);
}

}  // namespace

struct CUstream_st {
  CUstream_st() : thread([this] { Run(); }) {}
  ~CUstream_st() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    changed.notify_all();
    thread.join();
  }
  void Push(std::function<void()> work) {
    const std::lock_guard lock(mutex);
    queue.push_back(std::move(work));
    changed.notify_all();
  }
  void Run() {
    std::unique_lock lock(mutex);
    for (;;) {
      WaitUntil(lock, [this] { return stopping || !queue.empty(); });
      if (queue.empty()) return;
      const auto work = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      work();
      lock.lock();
      changed.notify_all();
    }
  }
  std::deque<std::function<void()>> queue;
  bool stopping = false;
  std::thread thread;
};

struct CUevent_st {
  std::shared_ptr<bool> recorded;  // null: never
};

namespace {

struct Meeting {
  int arrived = 0;
  std::vector<std::vector<char>> parts;  // by rank
  std::vector<char> result;
  bool complete = false;
};

struct World {
  int size = 0, come = 0;
  std::map<uint64_t, Meeting> meetings;
  std::vector<ncclComm_t> members;
};
std::map<std::string, std::shared_ptr<World>> worlds;

}  // namespace

struct ncclComm {
  std::shared_ptr<World> world;
  int rank = 0;
  uint64_t entered = 0;
  int polls = 0;
  bool aborted = false, finalizing = false;
  ncclResult_t async = ncclSuccess;
};

namespace {

void Note(const std::string& call) { calls.push_back(call); }

size_t BytesOf(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
      return 1;
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

template <class T>
void AddTo(std::vector<char>& sum, const std::vector<char>& part) {
  for (size_t i = 0; i < sum.size() / sizeof(T); ++i) {
    T a, b;
    std::memcpy(&a, sum.data() + i * sizeof(T), sizeof(T));
    std::memcpy(&b, part.data() + i * sizeof(T), sizeof(T));
    a += b;
    std::memcpy(sum.data() + i * sizeof(T), &a, sizeof(T));
  }
}

std::vector<char> SumOf(const std::vector<std::vector<char>>& parts, ncclDataType_t type) {
  std::vector<char> sum = parts[0];
  for (size_t r = 1; r < parts.size(); ++r) {
    if (type == ncclFloat32) AddTo<float>(sum, parts[r]);
    if (type == ncclFloat64) AddTo<double>(sum, parts[r]);
    if (type == ncclInt64) AddTo<int64_t>(sum, parts[r]);
  }
  return sum;
}

std::vector<char> Joined(const std::vector<std::vector<char>>& parts) {
  std::vector<char> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

using Combine = std::function<std::vector<char>(const std::vector<std::vector<char>>&)>;

// A collective: every rank brings `in`, and takes `size` bytes from `offset` of what is made of them.
ncclResult_t Enqueue(const char* name, ncclComm_t comm, cudaStream_t stream, const void* in, size_t in_bytes, void* out,
                     size_t offset, size_t size, const Combine& combine) {
  const std::lock_guard lock(mutex);
  const uint64_t number = comm->entered++;
  const auto found = script.faults.find({comm->rank, number});
  const Fault fault = found == script.faults.end() ? Fault{} : found->second;
  Note("enqueue " + std::to_string(comm->rank) + " " + name);
  if (fault.enqueue != ncclSuccess) return fault.enqueue;
  comm->polls = fault.polls;
  const std::shared_ptr<World> world = comm->world;
  stream->queue.push_back([=] {
    std::this_thread::sleep_for(fault.latency);
    std::unique_lock held(mutex);
    if (fault.hangs || fault.async != ncclSuccess) {
      comm->async = fault.async;
      WaitUntil(held, [&] { return comm->aborted; });
    }
    if (comm->aborted) return;
    Meeting& meeting = world->meetings[number];
    meeting.parts.resize(static_cast<size_t>(world->size));
    const char* bytes = static_cast<const char*>(in);
    meeting.parts[static_cast<size_t>(comm->rank)].assign(bytes, bytes + in_bytes);
    if (++meeting.arrived == world->size) {
      meeting.result = combine(meeting.parts);
      meeting.complete = true;
      changed.notify_all();
    }
    WaitUntil(held, [&] { return meeting.complete || comm->aborted; });
    if (meeting.complete) std::memcpy(out, meeting.result.data() + offset, size);
  });
  changed.notify_all();
  return fault.polls > 0 ? ncclInProgress : ncclSuccess;
}

}  // namespace

namespace fake_gpu {

void Reset(Script next) {
  const std::lock_guard lock(mutex);
  script = std::move(next);
  calls.clear();
  worlds.clear();
  aborts_released = false;
}

std::vector<std::string> Calls() {
  const std::lock_guard lock(mutex);
  return calls;
}

void ReleaseAborts() {
  const std::lock_guard lock(mutex);
  aborts_released = true;
  changed.notify_all();
}

void Launch(cudaStream_t stream, std::function<void()> work) { stream->Push(std::move(work)); }

}  // namespace fake_gpu

extern "C" {

const char* cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "a fake error"; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = new CUstream_st();
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const auto done = std::make_shared<bool>(false);
  stream->Push([done] {
    const std::lock_guard lock(mutex);
    *done = true;
  });
  std::unique_lock lock(mutex);
  WaitUntil(lock, [&] { return *done; });
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  std::unique_lock lock(mutex);
  const std::shared_ptr<bool> recorded = event->recorded;
  lock.unlock();
  if (!recorded) return cudaSuccess;
  stream->Push([recorded] {
    std::unique_lock held(mutex);
    WaitUntil(held, [&] { return *recorded; });
  });
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st();
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const auto recorded = std::make_shared<bool>(false);
  {
    const std::lock_guard lock(mutex);
    event->recorded = recorded;
  }
  stream->Push([recorded] {
    const std::lock_guard lock(mutex);
    *recorded = true;
  });
  return cudaSuccess;
}
// As of CUDA's runtime, which keeps for each thread what its calls have returned but for success.
thread_local cudaError_t last_error = cudaSuccess;
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(mutex);
  if (!event->recorded || *event->recorded) return cudaSuccess;
  return last_error = cudaErrorNotReady;
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError    ? "remote process exited or there was a network error"
         : result == ncclInvalidUsage ? "invalid usage"
                                      : "a fake error";
}
const char* ncclGetLastError(ncclComm_t) { return "said the fake"; }
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard lock(mutex);
  std::memset(id->internal, 0, sizeof id->internal);
  std::strcpy(id->internal, std::to_string(next_id++).c_str());
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  const std::lock_guard lock(mutex);
  Note("init " + std::to_string(rank) + (config->blocking == 0 ? "" : ", blocking"));
  auto& world = worlds[id.internal];
  if (!world) world = std::make_shared<World>();
  world->size = size;
  ++world->come;
  *comm = new ncclComm{};
  (*comm)->world = world;
  (*comm)->rank = rank;
  (*comm)->polls = script.polls;
  world->members.push_back(*comm);
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const std::lock_guard lock(mutex);
  *state = comm->async != ncclSuccess                                                    ? comm->async
           : comm->world->come < comm->world->size || (comm->polls > 0 && comm->polls--) ? ncclInProgress
                                                                                         : ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  std::unique_lock lock(mutex);
  Note("abort " + std::to_string(comm->rank));
  if (script.abort_hangs) WaitUntil(lock, [] { return aborts_released; });
  comm->aborted = true;
  if (script.peers_notice_abort) {
    for (ncclComm_t member : comm->world->members) {
      if (member != comm && !member->aborted) member->async = ncclRemoteError;
    }
  }
  changed.notify_all();
  return ncclSuccess;  // what is left of it goes with the process: its kernels may still look at it
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const std::lock_guard lock(mutex);
  Note("finalize " + std::to_string(comm->rank));
  comm->finalizing = true;
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const std::lock_guard lock(mutex);
  Note("destroy " + std::to_string(comm->rank));
  return ncclSuccess;
}
ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t, ncclComm_t comm,
                           cudaStream_t stream) {
  const size_t bytes = count * BytesOf(type);
  return Enqueue("all_reduce", comm, stream, in, bytes, out, 0, bytes,
                 [type](const auto& parts) { return SumOf(parts, type); });
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t,
                               ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * BytesOf(type), all = bytes * static_cast<size_t>(comm->world->size);
  return Enqueue("reduce_scatter", comm, stream, in, all, out, bytes * static_cast<size_t>(comm->rank), bytes,
                 [type](const auto& parts) { return SumOf(parts, type); });
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  const size_t bytes = count * BytesOf(type), all = bytes * static_cast<size_t>(comm->world->size);
  return Enqueue("all_gather", comm, stream, in, bytes, out, 0, all, Joined);
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  const size_t bytes = count * BytesOf(type);
  return Enqueue("broadcast", comm, stream, in, bytes, out, 0, bytes,
                 [root](const auto& parts) { return parts[static_cast<size_t>(root)]; });
}

}  // extern "C"
