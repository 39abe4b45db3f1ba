#include "trainer/device/convert.h"

#include <algorithm>

#include "trainer/device/host_device.h"

namespace trainyard {
namespace {

constexpr int64_t kPiece = 1 << 20;  // values

// fn(begin, size) for each piece of `numel` values.
template <class Function>
void ForPieces(int64_t numel, const Function& fn) {
  for (int64_t begin = 0; begin < numel; begin += kPiece) fn(begin, std::min(kPiece, numel - begin));
}

}  // namespace

std::span<float> Floats(const at::Tensor& flat) { return {flat.data_ptr<float>(), static_cast<size_t>(flat.numel())}; }

FlatMath& MathOf(const at::Tensor& tensor, Device& device) { return tensor.is_cpu() ? HostMath() : device.math(); }

void Convert(const at::Tensor& from, const at::Tensor& to, Device& device) {
  if (to.const_data_ptr() == from.const_data_ptr()) return;  // the same memory
  const auto round = [&](const at::Tensor& x, const at::Tensor& y) {
    MathOf(y, device).Round(x.const_data_ptr<float>(), y.mutable_data_ptr(), y.scalar_type(), y.numel());
  };
  if (from.device() == to.device()) return round(from, to);
  const at::Tensor x = from.view({from.numel()}), y = to.view({to.numel()});
  ForPieces(y.numel(), [&](int64_t begin, int64_t size) {
    round(x.narrow(0, begin, size).to(y.device()), y.narrow(0, begin, size));
  });
}

void ReadPieces(const at::Tensor& tensor, const Pieces& piece) {
  if (tensor.is_cpu() && tensor.scalar_type() == at::kFloat) return piece(Floats(tensor));
  const at::Tensor flat = tensor.view({tensor.numel()});
  ForPieces(flat.numel(), [&](int64_t begin, int64_t size) {
    const at::Tensor here = flat.narrow(0, begin, size).to(at::kFloat).cpu();
    piece(Floats(here));
  });
}

void Swap(const at::Tensor& a, const at::Tensor& b) {
  ForPieces(a.numel(), [&](int64_t begin, int64_t size) {
    const at::Tensor x = a.narrow(0, begin, size), y = b.narrow(0, begin, size), kept = x.clone();
    x.copy_(y);
    y.copy_(kept);
  });
}

}  // namespace trainyard
