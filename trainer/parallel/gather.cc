#include "trainer/parallel/gather.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <stdexcept>

#include "trainer/base/text.h"

namespace trainyard {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct GatherFunction : torch::autograd::Function<GatherFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, GatherSchedule* schedule, int64_t id) {
    std::vector<int64_t> counts;
    at::Tensor all = schedule->Exchange({static_cast<int32_t>(id)}, x, counts);
    ctx->saved_data["schedule"] = reinterpret_cast<int64_t>(schedule);
    ctx->saved_data["id"] = id;
    ctx->saved_data["counts"] = counts;
    return all;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    auto* schedule = reinterpret_cast<GatherSchedule*>(ctx->saved_data["schedule"].toInt());
    const GatherId id{static_cast<int32_t>(ctx->saved_data["id"].toInt())};
    return {schedule->SumGradient(id, grads[0], ctx->saved_data["counts"].toIntVector()), {}, {}};
  }
};

GatherSchedule::GatherSchedule(const ModelDeclaration& declaration, int64_t rows, at::Device device,
                               Collectives& collectives, std::function<void()> over)
    : columns_(declaration.gathers),
      rows_(rows),
      floats_(at::TensorOptions(at::kFloat).device(device)),
      collectives_(collectives),
      over_(std::move(over)) {}

void GatherSchedule::BeginStep(int64_t micro_batches) {
  next_ = 0;
  total_ = EndOf(micro_batches);
}

size_t GatherSchedule::EndOf(int64_t micro_batches) const {
  return collectives_.size() == 1 ? 0 : 2 * columns_.size() * static_cast<size_t>(micro_batches);
}

size_t GatherSchedule::Turn(GatherId id, bool backward) const {
  const auto i = static_cast<size_t>(id.index);
  return backward ? 2 * columns_.size() - 1 - i : i;
}

void GatherSchedule::Require(GatherId id, bool backward) const {
  if (next_ == total_ || next_ % (2 * columns_.size()) != Turn(id, backward))
    throw std::logic_error(
        Format("gather %d is out of turn: each micro-batch makes every declared gather once, in "
               "the declared order, and uses its result in the loss",
               id.index));
}

at::Tensor GatherSchedule::Gather(GatherId id, const at::Tensor& x) {
  if (collectives_.size() == 1) return x;
  const int64_t columns = columns_[static_cast<size_t>(id.index)];
  if (x.dim() != 2 || x.size(1) != columns || x.size(0) > rows_ || x.scalar_type() != at::kFloat)
    throw std::logic_error(Format("gather %d takes float32 of at most %lld rows and %lld columns", id.index,
                                  static_cast<long long>(rows_), static_cast<long long>(columns)));
  return GatherFunction::apply(x, this, static_cast<int64_t>(id.index));
}

at::Tensor GatherSchedule::Exchange(GatherId id, const at::Tensor& rows, std::vector<int64_t>& counts) {
  Require(id, false);
  const int64_t columns = columns_[static_cast<size_t>(id.index)], n = rows.size(0), size = 1 + rows_ * columns;
  at::Tensor in = at::zeros({size}, floats_), out = at::empty({size * collectives_.size()}, floats_);
  in[0] = n;
  in.narrow(0, 1, n * columns).copy_(rows.flatten());
  const auto ticket = collectives_.AllGather(in, out, Format("gather %d", id.index));
  ++next_;
  collectives_.Wait(ticket);
  const at::Tensor numbers = out.view({collectives_.size(), size}).select(1, 0).cpu();
  collectives_.ThrowIfFailed();  // then nobody has filled it
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < collectives_.size(); ++rank) {
    const at::Tensor part = out.narrow(0, rank * size, size);
    counts.push_back(static_cast<int64_t>(numbers[rank].item<float>()));
    parts.push_back(part.narrow(0, 1, counts.back() * columns).view({counts.back(), columns}));
  }
  return at::cat(parts);
}

at::Tensor GatherSchedule::SumGradient(GatherId id, const at::Tensor& gradient, const std::vector<int64_t>& counts) {
  Require(id, true);
  const int64_t columns = columns_[static_cast<size_t>(id.index)];
  at::Tensor padded = at::zeros({collectives_.size(), rows_, columns}, floats_);
  int64_t row = 0;
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    padded.select(0, static_cast<int64_t>(rank))
        .narrow(0, 0, counts[rank])
        .copy_(gradient.narrow(0, row, counts[rank]));
    row += counts[rank];
  }
  const auto ticket = collectives_.AllReduce(padded, Format("gather %d, gradient", id.index));
  ++next_;
  collectives_.Wait(ticket);
  const int64_t mine = counts.empty() ? 0 : counts[static_cast<size_t>(collectives_.rank())];
  at::Tensor result = padded.select(0, collectives_.rank()).narrow(0, 0, mine);
  over_();
  return result;
}

void GatherSchedule::Complete(int64_t micro_batches) {
  while (!complete(micro_batches)) CompleteNext();
}

void GatherSchedule::CompleteNext() {
  const size_t turn = next_ % (2 * columns_.size());
  const bool backward = turn >= columns_.size();
  const GatherId id{static_cast<int32_t>(backward ? 2 * columns_.size() - 1 - turn : turn)};
  const at::Tensor nothing = at::zeros({0, columns_[static_cast<size_t>(id.index)]}, floats_);
  std::vector<int64_t> counts;
  if (backward) {
    SumGradient(id, nothing, counts);
  } else {
    Exchange(id, nothing, counts);
  }
}

}  // namespace trainyard
