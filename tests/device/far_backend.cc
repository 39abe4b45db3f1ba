// What LibTorch has to be told of a far device: memory, views, copies; everything else goes through the CPU.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <array>
#include <cstring>
#include <optional>
#include <tuple>
#include <vector>

#include "tests/device/far_device.h"
#include "tests/device/far_memory.h"

namespace trainyard {
namespace {

constexpr c10::DeviceType kFar = c10::DeviceType::PrivateUse1;

thread_local c10::DeviceIndex current_device = 0;

struct FarGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kFar; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    current_device = device.index();
    return before;
  }
  c10::Device getDevice() const override { return {kFar, current_device}; }
  void setDevice(c10::Device device) const override { current_device = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current_device = device.index(); }
  c10::Stream getStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream getDefaultStream(c10::Device device) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return getStream(stream.device()); }
  c10::DeviceIndex deviceCount() const noexcept override { return kFarDevices; }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, FarGuard);

struct FarAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = TakeFarMemory(bytes);
    return {memory, memory, &ReturnFarMemory, c10::Device(kFar, current_device)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &ReturnFarMemory; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    const FarMemoryOpen open;
    default_copy_data(to, from, bytes);
  }
};
FarAllocator allocator;
REGISTER_ALLOCATOR(kFar, &allocator);

struct FarHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kFarDevices; }
  c10::DeviceIndex getCurrentDevice() const override { return current_device; }
  // The CPU draws for it.
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return at::detail::createCPUGenerator(); }
};
const bool known =
    (c10::register_privateuse1_backend("far"), at::RegisterPrivateUse1HooksInterface(new FarHooks), true);

// The same memory as a tensor of the CPU's.
at::Tensor Near(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  return at::from_blob(tensor.mutable_data_ptr(), tensor.sizes(), tensor.strides(),
                       at::TensorOptions(tensor.scalar_type()));
}
std::optional<at::Tensor> Near(const std::optional<at::Tensor>& tensor) {
  return tensor && tensor->defined() ? std::optional(Near(*tensor)) : std::nullopt;
}

at::Tensor Empty(at::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(*device);
  return at::detail::empty_generic(size, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   type.value_or(at::kFloat), format);
}
at::Tensor EmptyStrided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> type,
                        std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(*device);
  return at::detail::empty_strided_generic(size, stride, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           type.value_or(at::kFloat));
}
at::Tensor& Copy(at::Tensor& self, const at::Tensor& from, bool) {
  const FarMemoryOpen open;
  Near(self).copy_(Near(from));
  return self;
}
at::Tensor CopyFrom(const at::Tensor& self, const at::Tensor& to, bool) {
  const FarMemoryOpen open;
  Near(to).copy_(Near(self));
  return to;
}
const at::Tensor& Resize(const at::Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat>) {
  const FarMemoryOpen open;
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(size);
  const size_t bytes = self.numel() * self.itemsize() + self.storage_offset() * self.itemsize();
  if (bytes > self.storage().nbytes()) {
    const c10::DeviceGuard guard(self.device());
    c10::DataPtr memory = allocator.allocate(bytes);
    std::memcpy(memory.get(), self.storage().data(), self.storage().nbytes());
    self.storage().set_data_ptr_noswap(std::move(memory));
    self.storage().set_nbytes(bytes);
  }
  return self;
}
at::Tensor CopyFromAndResize(const at::Tensor& self, const at::Tensor& to) {
  if (to.sizes() != self.sizes()) Resize(to, self.sizes(), {});
  return CopyFrom(self, to, false);
}
at::Tensor& SetStorage(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size,
                       at::IntArrayRef stride) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_storage_offset(offset);
  impl->set_sizes_and_strides(size, stride);
  return self;
}
// The CPU changes the running statistics in place, which the schema does not say.
std::tuple<at::Tensor, at::Tensor, at::Tensor> BatchNorm(const at::Tensor& x, const std::optional<at::Tensor>& weight,
                                                         const std::optional<at::Tensor>& bias,
                                                         const std::optional<at::Tensor>& mean,
                                                         const std::optional<at::Tensor>& variance, bool training,
                                                         double momentum, double eps) {
  const FarMemoryOpen open;
  const auto [y, saved_mean, saved_deviation] =
      at::native_batch_norm(Near(x), Near(weight), Near(bias), Near(mean), Near(variance), training, momentum, eps);
  return {y.to(x.device()), saved_mean.to(x.device()), saved_deviation.to(x.device())};
}
at::Tensor Convolution(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                       at::IntArrayRef output_padding, int64_t groups) {
  const FarMemoryOpen open;
  return at::convolution(Near(x), Near(weight), Near(bias), stride, padding, dilation, transposed, output_padding,
                         groups)
      .to(x.device());
}
std::tuple<at::Tensor, at::Tensor, at::Tensor> ConvolutionBackward(const at::Tensor& dy, const at::Tensor& x,
                                                                   const at::Tensor& weight, at::IntArrayRef stride,
                                                                   at::IntArrayRef padding, at::IntArrayRef dilation,
                                                                   bool transposed, at::IntArrayRef output_padding,
                                                                   int64_t groups, std::array<bool, 3> wanted) {
  const FarMemoryOpen open;
  const std::vector<int64_t> bias_sizes = {dy.size(1)};
  const auto [dx, dw, db] = at::convolution_backward(Near(dy), Near(x), Near(weight), bias_sizes, stride, padding,
                                                     dilation, transposed, output_padding, groups, wanted);
  const auto far = [&](const at::Tensor& tensor) { return tensor.defined() ? tensor.to(x.device()) : tensor; };
  return {far(dx), far(dw), far(db)};
}
void ByTheCpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) { at::native::cpu_fallback(op, stack); }

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&ByTheCpu>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &Empty);
  m.impl("empty_strided", &EmptyStrided);
  m.impl("copy_", &Copy);
  m.impl("_copy_from", &CopyFrom);
  m.impl("_copy_from_and_resize", &CopyFromAndResize);
  m.impl("resize_", &Resize);
  m.impl("set_.source_Storage_storage_offset", &SetStorage);
  m.impl("native_batch_norm", &BatchNorm);
  m.impl("convolution_overrideable", &Convolution);
  m.impl("convolution_backward_overrideable", &ConvolutionBackward);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("unfold", &at::native::unfold);
}

}  // namespace
}  // namespace trainyard
