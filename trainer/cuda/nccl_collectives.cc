#include "trainer/cuda/nccl_collectives.h"

#include <nccl.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/comm/errands.h"
#include "trainer/cuda/cuda_error.h"

namespace trainyard {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr std::chrono::milliseconds kWatch{10};  // between two looks at what is in flight
constexpr std::chrono::microseconds kPoll{100};  // between two questions whether NCCL has taken a call
constexpr char kIdKey[] = "id";

ncclDataType_t TypeOf(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kFloat:
      return ncclFloat32;
    case at::kDouble:
      return ncclFloat64;
    case at::kLong:
      return ncclInt64;
    default:
      throw std::logic_error(std::string("there are no sums of ") + c10::toString(x.scalar_type()));
  }
}

// cudaEventQuery, after which nobody's check behind a launch finds "not ready": it is an answer, and no error.
cudaError_t Ask(cudaEvent_t event) {
  const cudaError_t answer = cudaEventQuery(event);
  if (answer == cudaErrorNotReady) cudaGetLastError();
  return answer;
}

size_t Count(const at::Tensor& x) { return static_cast<size_t>(x.numel()); }

std::string TextOf(ncclResult_t result, ncclComm_t comm) {
  const char* detail = ncclGetLastError(comm);
  std::string text = ncclGetErrorString(result);
  if (detail && *detail) text += std::string(": ") + detail;
  return text;
}

// What a result of NCCL's means to this rank.
std::exception_ptr ErrorOf(ncclResult_t result, const std::string& text) {
  switch (result) {
    case ncclInvalidUsage:  // "Duplicate GPU detected"
      return std::make_exception_ptr(ConfigError(text + "; each rank needs a GPU of its own"));
    case ncclInvalidArgument:
    case ncclInternalError:
      return std::make_exception_ptr(Error(ExitCode::kInternal, text));
    default:  // ncclRemoteError, ncclSystemError (sockets), ncclUnhandledCudaError (a peer's memory)
      return std::make_exception_ptr(PeerError(text));
  }
}

// NCCL's communicator. Its calls are made one at a time; Abort may come between two of them.
class Communication {
 public:
  Communication(Store& store, const NcclOptions& options) : options_(options) {
    ncclUniqueId id{};
    if (options.rank == 0) {
      if (const ncclResult_t result = ncclGetUniqueId(&id); result != ncclSuccess)
        std::rethrow_exception(ErrorOf(result, "NCCL gives no id: " + TextOf(result, nullptr)));
      store.Set(kIdKey, std::string(id.internal, sizeof id.internal));
    } else {
      const std::string text = store.Wait(kIdKey, options.rendezvous_timeout, "NCCL's id, from rank 0");
      if (text.size() != sizeof id.internal) throw PeerError("rank 0 gave an id that is none of this NCCL's");
      std::memcpy(id.internal, text.data(), text.size());
    }
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const ncclResult_t begun = ncclCommInitRankConfig(&comm_, options.size, id, options.rank, &config);
    const ncclResult_t result =
        begun == ncclInProgress || begun == ncclSuccess ? Await(options.rendezvous_timeout) : begun;
    if (result == ncclSuccess) return;
    const std::string what = Format("connecting rank %d of %d over NCCL failed: ", options.rank, options.size);
    const std::string text = result == ncclInProgress
                                 ? "not answered within " + HumanSeconds(options.rendezvous_timeout.count()) +
                                       " (parallel.rendezvous_seconds)"
                                 : TextOf(result, comm_);
    Abort();
    std::rethrow_exception(ErrorOf(result == ncclInProgress ? ncclRemoteError : result, what + text));
  }

  // One that is connected and was not closed: whoever made it failed in what comes next.
  ~Communication() { Abort(); }
  Communication(const Communication&) = delete;
  Communication& operator=(const Communication&) = delete;

  ncclResult_t State() {
    const std::lock_guard lock(mutex_);
    return StateLocked();
  }

  // What `call(communicator)` gives; ncclInProgress where NCCL goes on with it.
  template <class F>
  ncclResult_t Call(F call) {
    const std::lock_guard lock(mutex_);
    return comm_ ? call(comm_) : ncclInvalidUsage;
  }

  std::string Explain(ncclResult_t result) {
    const std::lock_guard lock(mutex_);
    return TextOf(result, comm_);
  }

  // False when NCCL does not return in time.
  bool Abort() {
    ncclComm_t comm = nullptr;
    {
      const std::lock_guard lock(mutex_);
      comm = std::exchange(comm_, nullptr);
    }
    if (!comm) return true;
    return errands_.Do([comm] { ncclCommAbort(comm); }, options_.abort_timeout);
  }

  // Ends it with all others', when nothing is in flight.
  void Close() {
    if (Call([](ncclComm_t comm) { return ncclCommFinalize(comm); }) == ncclInvalidUsage) return;
    if (Await(options_.abort_timeout) != ncclSuccess) {
      Abort();
      return;
    }
    const std::lock_guard lock(mutex_);
    ncclCommDestroy(std::exchange(comm_, nullptr));
  }

 private:
  ncclResult_t StateLocked() {
    ncclResult_t state = ncclSuccess;
    if (!comm_) return ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
    return asked == ncclSuccess ? state : asked;
  }

  ncclResult_t Await(Seconds patience) {
    const auto until = Clock::now() + patience;
    for (;;) {
      const ncclResult_t state = State();
      if (state != ncclInProgress || Clock::now() > until) return state;
      std::this_thread::sleep_for(kPoll);
    }
  }

  const NcclOptions& options_;
  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;  // null: aborted, or closed
  Errands errands_;
};

class NcclCollectives : public Collectives {
 public:
  NcclCollectives(Store& store, const NcclOptions& options) : options_(options), communication_(store, options_) {
    RequireCuda(cudaSetDevice(options_.device), "cudaSetDevice");
    int least = 0, greatest = 0;
    RequireCuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    // Before what computes: a collective that waits for a place on the device keeps all ranks waiting.
    RequireCuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest),
                "cudaStreamCreateWithPriority");
    ready_ = NewEvent();
    thread_ = std::thread([this] { Watch(); });
  }

  ~NcclCollectives() override {
    {
      std::unique_lock lock(mutex_);
      // Each has its deadline, after which it has failed.
      changed_.wait(lock, [this] { return jobs_.empty() || settled_; });
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
    if (!failure_) communication_.Close();
    if (stuck_) return;  // its kernels may still run: nothing of theirs may go
    for (const Job& job : jobs_) cudaEventDestroy(job.done);
    for (const cudaEvent_t event : free_events_) cudaEventDestroy(event);
    cudaEventDestroy(ready_);
    cudaStreamDestroy(stream_);
  }

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }

  Ticket AllReduce(at::Tensor x, std::string unit) override {
    const ncclDataType_t type = TypeOf(x);
    return Submit("all_reduce", unit, x, {x}, [&, type](ncclComm_t comm) {
      return ncclAllReduce(x.data_ptr(), x.data_ptr(), Count(x), type, ncclSum, comm, stream_);
    });
  }
  Ticket ReduceScatter(at::Tensor in, at::Tensor out, std::string unit) override {
    const ncclDataType_t type = TypeOf(in);
    return Submit("reduce_scatter", unit, in, {in, out}, [&, type](ncclComm_t comm) {
      return ncclReduceScatter(in.data_ptr(), out.data_ptr(), Count(out), type, ncclSum, comm, stream_);
    });
  }
  // Bytes are bytes: any type.
  Ticket AllGather(at::Tensor in, at::Tensor out, std::string unit) override {
    return Submit("all_gather", unit, out, {in, out}, [&](ncclComm_t comm) {
      return ncclAllGather(in.data_ptr(), out.data_ptr(), in.nbytes(), ncclInt8, comm, stream_);
    });
  }
  Ticket Broadcast(at::Tensor x, int root, std::string unit) override {
    return Submit("broadcast", unit, x, {x}, [&, root](ncclComm_t comm) {
      return ncclBroadcast(x.data_ptr(), x.data_ptr(), x.nbytes(), ncclInt8, root, comm, stream_);
    });
  }

  void Wait(Ticket ticket) override {
    const std::lock_guard lock(mutex_);
    ThrowFailure();
    if (const Job* job = Find(ticket))
      RequireCuda(cudaStreamWaitEvent(options_.current_stream(), job->done, 0), "cudaStreamWaitEvent");
  }
  bool Done(Ticket ticket) override {
    const std::lock_guard lock(mutex_);
    const Job* job = Find(ticket);
    return failure_ || !job || Ask(job->done) == cudaSuccess;
  }
  void ThrowIfFailed() override {
    const std::lock_guard lock(mutex_);
    ThrowFailure();
  }

 private:
  struct Job {
    Ticket ticket = 0;
    std::string what;                 // "all_reduce (bucket 0)"
    std::vector<at::Tensor> tensors;  // until it is over
    cudaEvent_t done = nullptr;
    bool enqueued = false;    // `done` is recorded
    Clock::time_point since;  // the one before it was over, and it was asked for
  };

  static cudaEvent_t NewEvent() {
    cudaEvent_t event = nullptr;
    RequireCuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    return event;
  }

  void ThrowFailure() const {
    if (failure_) std::rethrow_exception(failure_);
  }

  // Null when it is over.
  Job* Find(Ticket ticket) {
    if (jobs_.empty() || ticket < jobs_.front().ticket) return nullptr;
    return &jobs_[ticket - jobs_.front().ticket];
  }

  template <class F>
  Ticket Submit(const char* name, const std::string& unit, const at::Tensor& moved, std::vector<at::Tensor> tensors,
                F call) {
    const std::string what = std::string(name) + " (" + unit + ")";
    Ticket ticket = 0;
    try {
      {
        const std::lock_guard lock(mutex_);
        ThrowFailure();
        if (free_events_.empty()) free_events_.push_back(NewEvent());
        jobs_.push_back({submitted_, what, std::move(tensors), free_events_.back(), false, Clock::now()});
        free_events_.pop_back();
        ticket = submitted_++;
        if (options_.recorder)
          options_.recorder->Enter(options_.group, name, unit, static_cast<int64_t>(moved.nbytes()));
      }
      changed_.notify_all();
      RequireCuda(cudaEventRecord(ready_, options_.current_stream()), "cudaEventRecord");
      RequireCuda(cudaStreamWaitEvent(stream_, ready_, 0), "cudaStreamWaitEvent");
      AwaitTaken(what, communication_.Call(call));
      const std::lock_guard lock(mutex_);
      ThrowFailure();
      Job& job = *Find(ticket);
      RequireCuda(cudaEventRecord(job.done, stream_), "cudaEventRecord");
      job.enqueued = true;
    } catch (...) {
      Fail(std::current_exception());
      throw;
    }
    return ticket;
  }

  // Until NCCL has enqueued a call, which it may do beside us; the watching thread keeps the deadline.
  void AwaitTaken(const std::string& what, ncclResult_t result) {
    for (; result == ncclInProgress; result = communication_.State()) {
      std::this_thread::sleep_for(kPoll);
      const std::lock_guard lock(mutex_);
      ThrowFailure();
    }
    if (result == ncclSuccess) return;
    Fail(ErrorOf(result, "a collective failed: " + what + ": " + communication_.Explain(result)));
    const std::lock_guard lock(mutex_);
    ThrowFailure();
  }

  // The first failure is what everyone hears of.
  void Fail(std::exception_ptr failure) {
    std::string text;
    {
      const std::lock_guard lock(mutex_);
      if (failure_) return;
      failure_ = std::move(failure);
      try {
        std::rethrow_exception(failure_);
      } catch (const std::exception& error) {
        text = error.what();
      }
    }
    const bool released = communication_.Abort();
    {
      const std::lock_guard lock(mutex_);
      stuck_ = !released;
      settled_ = true;
    }
    changed_.notify_all();
    if (!released && options_.stuck)
      options_.stuck(text + "; NCCL did not end it within " + HumanSeconds(options_.abort_timeout.count()));
  }

  void Watch() {
    cudaSetDevice(options_.device);
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      if (jobs_.empty() || failure_) {
        changed_.wait_for(lock, jobs_.empty() ? std::chrono::milliseconds(1000) : kWatch);
      } else {
        changed_.wait_for(lock, kWatch, [this] { return stopping_; });
      }
      if (failure_) continue;
      Retire();
      std::exception_ptr failure = DeviceFailure();
      const std::string overdue = Overdue();
      const std::string front = jobs_.empty() ? "no collective" : jobs_.front().what;
      lock.unlock();
      if (const ncclResult_t state = communication_.State();
          !failure && state != ncclSuccess && state != ncclInProgress)
        failure = ErrorOf(state, "a collective failed: " + front + ": " + communication_.Explain(state));
      if (!failure && !overdue.empty()) failure = std::make_exception_ptr(PeerError(overdue + Silent()));
      if (failure) Fail(failure);
      lock.lock();
    }
  }

  // Forgets what is over.
  void Retire() {
    while (!jobs_.empty() && jobs_.front().enqueued && Ask(jobs_.front().done) == cudaSuccess) {
      free_events_.push_back(jobs_.front().done);
      jobs_.pop_front();
      if (options_.recorder) options_.recorder->End(options_.group);
      if (!jobs_.empty()) jobs_.front().since = std::max(jobs_.front().since, Clock::now());
    }
    if (jobs_.empty()) changed_.notify_all();
  }

  std::exception_ptr DeviceFailure() const {
    if (jobs_.empty() || !jobs_.front().enqueued) return nullptr;
    const cudaError_t result = Ask(jobs_.front().done);
    if (result == cudaSuccess || result == cudaErrorNotReady) return nullptr;
    return std::make_exception_ptr(Error(
        ExitCode::kInternal, "the device failed before " + jobs_.front().what + ": " + cudaGetErrorString(result)));
  }

  std::string Overdue() const {
    if (jobs_.empty() || Clock::now() - jobs_.front().since < options_.collective_timeout) return "";
    return "a collective failed: " + jobs_.front().what + ": not answered within " +
           HumanSeconds(options_.collective_timeout.count()) + " (parallel.collective_seconds)";
  }

  std::string Silent() const { return options_.who_is_silent ? "; " + options_.who_is_silent() : ""; }

  const NcclOptions options_;
  Communication communication_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t ready_ = nullptr;  // the caller's stream, when a collective was asked for last
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // in flight, by ticket
  std::vector<cudaEvent_t> free_events_;
  Ticket submitted_ = 0;
  std::exception_ptr failure_;
  bool settled_ = false,
       stuck_ = false;  // after a failure: the communicator was aborted; NCCL did not return from that
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Collectives> MakeNcclCollectives(std::shared_ptr<Store> store, const NcclOptions& options) {
  return std::make_unique<NcclCollectives>(*store, options);
}

}  // namespace trainyard
