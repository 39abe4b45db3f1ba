#include "trainer/parallel/buffers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

namespace trainyard {

Buffers::Buffers(const ModelDeclaration& declaration, at::Device device)
    : declaration_(declaration), staged_(declaration.buffers.size()) {
  for (const BufferSpec& spec : declaration.buffers)
    committed_.push_back(at::full(spec.shape, spec.initial, at::TensorOptions(at::kFloat).device(device)));
}

at::Tensor Buffers::Get(BufferId id) const {
  const auto i = static_cast<size_t>(id.index);
  return staged_[i].defined() ? staged_[i] : committed_[i];
}

void Buffers::Stage(BufferId id, const at::Tensor& value) {
  const auto i = static_cast<size_t>(id.index);
  staged_[i] = value.detach().to(committed_[i].options()).reshape(declaration_.buffers[i].shape).clone();
}

void Buffers::Discard() { staged_.assign(staged_.size(), at::Tensor()); }

void Buffers::Reduce(Collectives& collectives) {
  if (empty() || collectives.size() == 1) return;
  // Per buffer: how many ranks count, and the sum of their values. A rank that staged nothing adds zeros, and one that
  // its policy leaves out does as well.
  int64_t total = 0;
  for (const BufferSpec& spec : declaration_.buffers) total += 1 + spec.numel();
  at::Tensor sums = at::zeros({total}, committed_[0].options().dtype(at::kDouble));
  int64_t at = 0;
  for (size_t i = 0; i < staged_.size(); ++i) {
    const BufferSpec& spec = declaration_.buffers[i];
    if (staged_[i].defined() && (spec.policy == BufferPolicy::kMean || collectives.rank() == 0)) {
      sums[at] = 1;
      sums.narrow(0, at + 1, spec.numel()).copy_(staged_[i].flatten());
    }
    at += 1 + spec.numel();
  }
  collectives.Wait(collectives.AllReduce(sums, "buffers"));
  const at::Tensor here = sums.cpu();
  at = 0;
  for (size_t i = 0; i < staged_.size(); ++i) {
    const BufferSpec& spec = declaration_.buffers[i];
    const double ranks = here[at].item<double>();
    staged_[i] =
        ranks == 0 ? at::Tensor() : (sums.narrow(0, at + 1, spec.numel()) / ranks).to(at::kFloat).reshape(spec.shape);
    at += 1 + spec.numel();
  }
}

void Buffers::Commit() {
  for (size_t i = 0; i < staged_.size(); ++i) {
    if (staged_[i].defined()) committed_[i].copy_(staged_[i]);  // In place: a checkpoint knows the memory.
  }
  Discard();
}

}  // namespace trainyard
