// What layers do to rows on a device in one kernel, where ATen needs several with whole tensors in between: operations
// of LibTorch's dispatcher, named trainyard::..., with a form of ATen's for every device and one that a plug-in brings
// for its own (trainer/cuda/cuda_ops.cc).
#ifndef TRAINYARD_TRAINER_MODEL_DEVICE_ROWS_H_
#define TRAINYARD_TRAINER_MODEL_DEVICE_ROWS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trainyard::device_ops {

// Whether NormOfRows takes rows of this width: 64, 128, multiples of 256 up to 2048.
bool IsNormWidth(int64_t width);

// (x - mean) rstd gamma + beta by each row's mean and biased variance, computed in float32, in x's type.
// x: (..., width), gamma, beta: (width) float32. REQUIRES: IsNormWidth(width).
at::Tensor NormOfRows(const at::Tensor& x, const at::Tensor& gamma, const at::Tensor& beta, double eps);

// x weight^T + bias.  x: (..., inputs), weight: (outputs, inputs), bias: (outputs), of one type.
at::Tensor ProductOfRows(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// token_loss.h's SumOfTokenLosses of rows.  x: (rows, width), weight: (classes, width), targets: (rows). Holds the
// logits until backward, whose gradient takes their place.
at::Tensor TokenLoss(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets, int64_t ignored);

}  // namespace trainyard::device_ops

#endif  // TRAINYARD_TRAINER_MODEL_DEVICE_ROWS_H_
