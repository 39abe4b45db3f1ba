// The operations of trainer/model/device_rows.h by kernels of our own.
#ifndef TRAINYARD_TRAINER_CUDA_CUDA_OPS_H_
#define TRAINYARD_TRAINER_CUDA_CUDA_OPS_H_

namespace trainyard {

// From now on LibTorch's dispatcher finds them for tensors on GPUs. More calls do nothing.
void RegisterCudaOps();

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_CUDA_CUDA_OPS_H_
