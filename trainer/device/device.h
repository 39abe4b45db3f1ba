// Where a rank computes: what a device offers to the trainer besides the tensors on it, which LibTorch computes with.
// The host's processors are one (host_device.h); a plug-in makes the others (plugin.h). No caller asks which it has.
#ifndef TRAINYARD_TRAINER_DEVICE_DEVICE_H_
#define TRAINYARD_TRAINER_DEVICE_DEVICE_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>

#include "trainer/comm/collectives.h"
#include "trainer/comm/connect_options.h"
#include "trainer/comm/store.h"
#include "trainer/device/flat_math.h"
#include "trainer/device/tile_copies.h"

namespace trainyard {

struct DeviceMemory {
  int64_t free = 0;   // bytes that this process may still have: what nobody holds, and what its allocator keeps unused;
                      // of the host, where nobody counts, its limit
  int64_t total = 0;  // bytes of the whole device
};

// Calls concern the calling thread's stream where they name none. Safe for any number of threads. Everything throws
// OutOfMemoryError for the device's memory, and Error for a device that has failed.
class Device {
 public:
  virtual ~Device() = default;
  virtual at::Device device() const = 0;
  // For people: "cuda:0, NVIDIA H100 80GB HBM3".
  virtual std::string name() const = 0;
  virtual DeviceMemory memory() const = 0;
  // Bytes that this process has held at most since it was last asked this, beyond what it holds now; 0 where nobody
  // counts.
  virtual int64_t TakePeak() { return 0; }
  virtual FlatMath& math() = 0;

  // For an update of what lies in the host's memory. Used by one thread; the device must outlive it.
  virtual std::unique_ptr<TileCopies> MakeCopies() = 0;
  // A copy of a host tensor, on the device. It is made beside what computes; whatever this thread enqueues afterwards
  // comes behind it. `host` may change when this returns.
  virtual at::Tensor Upload(const at::Tensor& host) = 0;
  // A copy of a contiguous float32 tensor of this device, of as many values as `to` has room for; it is made beside
  // what computes. For any thread. REQUIRES: what was enqueued to write to `from` is done.
  virtual void Download(const at::Tensor& from, float* to) = 0;
  // Returns when everything is done that this thread has enqueued.
  virtual void Synchronize() = 0;

  // Connects to every other rank, for tensors on this device, through keys of `store` that nobody else uses. Throws
  // PeerError when one does not come in time.
  virtual std::unique_ptr<Collectives> Connect(std::shared_ptr<Store> store, const ConnectOptions& options) = 0;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_DEVICE_DEVICE_H_
