// Copies between the memory that forward and backward use and the host memory that an offloaded optimizer uses.
#ifndef TRAINYARD_TRAINER_DEVICE_TILE_COPIES_H_
#define TRAINYARD_TRAINER_DEVICE_TILE_COPIES_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

namespace trainyard {

// Copies run in their order, beside the caller. A tensor that is copied from or to stays as it is until Wait has
// returned for that copy or a later one. Used by one thread.
class TileCopies {
 public:
  // A copy on its way.
  using Event = uint64_t;

  virtual ~TileCopies() = default;

  // Host memory that Copy is fast with: (elements) of a type, not initialised.
  virtual at::Tensor HostMemory(int64_t elements, at::ScalarType type) = 0;
  // Begins to copy `from` to `to`: contiguous, of one size and type, one of them in host memory. What the caller's
  // device was asked to do with either before comes first.
  virtual Event Copy(const at::Tensor& from, const at::Tensor& to) = 0;
  // Returns when that copy and all before it are done. Throws what they have thrown.
  virtual void Wait(Event event) = 0;
};

// Where the device is the host: a thread that copies.
std::unique_ptr<TileCopies> MakeHostCopies();

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_DEVICE_TILE_COPIES_H_
