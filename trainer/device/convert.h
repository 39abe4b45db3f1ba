// Values from one place to another: from float32 to the type that forward computes with, from the host to a device.
#ifndef TRAINYARD_TRAINER_DEVICE_CONVERT_H_
#define TRAINYARD_TRAINER_DEVICE_CONVERT_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>

#include "trainer/device/device.h"

namespace trainyard {

// Takes some values; they are gone when it returns.
using Pieces = std::function<void(std::span<const float>)>;

// Contiguous float32 in the host's memory.
std::span<float> Floats(const at::Tensor& flat);

// The arithmetic for what lies where `tensor` does: the host's, or that of `device`.
FlatMath& MathOf(const at::Tensor& tensor, Device& device);

// to = from, contiguous and of one size, each in the host's memory or on `device`; `from` is float32, and rounded to
// the type of `to`: to the same bits wherever they lie. Returns when the host may read `to`, or the device has it next
// in its order.
void Convert(const at::Tensor& from, const at::Tensor& to, Device& device);

// Gives `piece` the values of a contiguous tensor of any float type, as float32 in the host's memory: as they lie
// there, or a piece at a time, so that nothing is held as a whole that was not before.
void ReadPieces(const at::Tensor& tensor, const Pieces& piece);

// Exchanges the values of two float32 tensors of one size, wherever they lie.
void Swap(const at::Tensor& a, const at::Tensor& b);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_DEVICE_CONVERT_H_
