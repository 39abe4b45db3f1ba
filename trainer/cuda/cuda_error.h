// Calls of CUDA's runtime that may fail.
#ifndef TRAINYARD_TRAINER_CUDA_CUDA_ERROR_H_
#define TRAINYARD_TRAINER_CUDA_CUDA_ERROR_H_

#include <cuda_runtime_api.h>

#include <string>

#include "trainer/base/error.h"

namespace trainyard {

// Throws OutOfMemoryError for memory, else an internal error: "cudaEventCreate: no error text".
inline void RequireCuda(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  const std::string text = std::string(what) + ": " + cudaGetErrorString(result);
  if (result == cudaErrorMemoryAllocation) throw OutOfMemoryError(text);
  throw Error(ExitCode::kInternal, text);
}

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_CUDA_CUDA_ERROR_H_
