// The operations of fused_ops.h, product.h, rows.h and convolve.h for tensors that do not lie in the host's memory:
// ATen's own, which a device computes. They take what those take, and promise their values, not their bits. Those call
// them; models do not.
#ifndef TRAINYARD_TRAINER_MODEL_DEVICE_OPS_H_
#define TRAINYARD_TRAINER_MODEL_DEVICE_OPS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "trainer/model/fused_ops.h"

namespace trainyard {

// 1 / (1 - p) where a draw keeps an element, else 0; on the device and in the type of `like`. The draw is a pure
// function of the key on one kind of device, and uses no generator but its own.
at::Tensor KeepMask(at::IntArrayRef sizes, const at::TensorOptions& like, const DropoutDraw& dropout);

namespace device_ops {

at::Tensor PrefixAttention(const at::Tensor& qkv, const at::Tensor& visible, AttentionLayout layout,
                           const DropoutDraw& dropout);
at::Tensor PrefixAttentionOfQueries(const at::Tensor& q, const at::Tensor& kv, const at::Tensor& visible,
                                    AttentionLayout layout, const DropoutDraw& dropout);
at::Tensor DropoutAddNorm(const at::Tensor& x, const at::Tensor& r, const at::Tensor& gamma, const at::Tensor& beta,
                          const DropoutDraw& dropout);
at::Tensor Norm(const at::Tensor& x, const at::Tensor& gamma, const at::Tensor& beta, double eps);
at::Tensor GeluDropout(const at::Tensor& x, const DropoutDraw& dropout);
at::Tensor GeluTanh(const at::Tensor& x);
at::Tensor Product(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias);
at::Tensor Convolve(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                    at::IntArrayRef stride, at::IntArrayRef padding);

}  // namespace device_ops
}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MODEL_DEVICE_OPS_H_
