// Tile copies (device/tile_copies.h) between pinned host memory and a GPU, on a stream of their own.
#ifndef TRAINYARD_TRAINER_CUDA_CUDA_COPIES_H_
#define TRAINYARD_TRAINER_CUDA_CUDA_COPIES_H_

#include <c10/core/Device.h>

#include <memory>

#include "trainer/device/tile_copies.h"

namespace trainyard {

// Their order with what computes is that of the calling thread's current stream.
std::unique_ptr<TileCopies> MakeCudaCopies(at::Device device);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_CUDA_CUDA_COPIES_H_
