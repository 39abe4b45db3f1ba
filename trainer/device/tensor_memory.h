// Where LibTorch's tensors of the host lie.
#ifndef TRAINYARD_TRAINER_DEVICE_TENSOR_MEMORY_H_
#define TRAINYARD_TRAINER_DEVICE_TENSOR_MEMORY_H_

#include <cstddef>

namespace trainyard {

inline constexpr size_t kLeastPooledBytes = size_t{64} << 10;

// From here on tensors of kLeastPooledBytes and more lie in a pool of pages (base/page_pool.h), of `most_bytes` in all.
// Smaller ones, and what the pool refuses, lie where LibTorch puts them, which throws c10::Error where there is no
// memory. LibTorch's profiler sees all of them. Returns false, and changes nothing, where there can be no pool; a
// second call changes nothing. Not while another thread makes tensors.
bool PoolTensors(size_t most_bytes);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_DEVICE_TENSOR_MEMORY_H_
