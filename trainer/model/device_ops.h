// The operations of fused_ops.h, attention.h, product.h, rows.h, convolve.h and global_batch_norm.h for tensors that do
// not lie in the host's memory: ATen's own, which a device computes. They take what those take, and promise their
// values, not their bits. Those call them; models do not.
#ifndef TRAINYARD_TRAINER_MODEL_DEVICE_OPS_H_
#define TRAINYARD_TRAINER_MODEL_DEVICE_OPS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "trainer/model/dropout_draw.h"

namespace trainyard {

// 1 / (1 - p) where a draw keeps an element, else 0; on the device and in the type of `like`. The draw is a pure
// function of the key on one kind of device, and uses no generator but its own.
at::Tensor KeepMask(at::IntArrayRef sizes, const at::TensorOptions& like, const DropoutDraw& dropout);

namespace device_ops {

at::Tensor PrefixAttention(const at::Tensor& qkv, const at::Tensor& visible, int64_t heads, const DropoutDraw& dropout);
at::Tensor PrefixAttentionOfQueries(const at::Tensor& q, const at::Tensor& kv, const at::Tensor& visible, int64_t heads,
                                    const DropoutDraw& dropout);
at::Tensor SelfAttention(const at::Tensor& qkv, int64_t heads, const DropoutDraw& dropout);
at::Tensor CrossAttention(const at::Tensor& q, const at::Tensor& kv, int64_t heads, const DropoutDraw& dropout);
at::Tensor DropoutAddNorm(const at::Tensor& x, const at::Tensor& r, const at::Tensor& gamma, const at::Tensor& beta,
                          const DropoutDraw& dropout);
at::Tensor Norm(const at::Tensor& x, const at::Tensor& gamma, const at::Tensor& beta, double eps);
at::Tensor GeluDropout(const at::Tensor& x, const DropoutDraw& dropout);
at::Tensor GeluTanh(const at::Tensor& x);
at::Tensor Product(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias);
at::Tensor Convolve(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                    at::IntArrayRef stride, at::IntArrayRef padding);

// What GlobalBatchNorm is made of.  x: (B, C, ...) -> (B, 2 C): each channel's mean over its places, then its biased
// variance.
at::Tensor SampleMoments(const at::Tensor& x);
// rows: (R, 1 + 2 C), a sample's weight and moments -> (2, C): those of all samples together; zeros without weight.
at::Tensor MomentsTogether(const at::Tensor& rows);
// (x - mean) / sqrt(variance + eps) weight + bias.  x: (B, C, ...), moments: (2, C), weight, bias: (C); all float32.
at::Tensor Normalise(const at::Tensor& x, const at::Tensor& moments, const at::Tensor& weight, const at::Tensor& bias,
                     double eps);

}  // namespace device_ops
}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MODEL_DEVICE_OPS_H_
