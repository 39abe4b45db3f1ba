#include "trainer/model/product.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <vector>

#include "trainer/model/device_ops.h"
#include "trainer/model/rows.h"
#include "trainer/threads/parallel_for.h"

namespace trainyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Rows or columns of a weight whose gradients one task computes: wide enough for the library's kernels.
constexpr int64_t kWidthPerTask = 64;
constexpr int64_t kRowsPerTask = 4096;

// How many rows and columns of a product's result one task computes.
struct Tile {
  int64_t rows, columns;
};

// Follows from the shape alone: with the library's own cuts, which follow the number of threads, the last bits do as
// well (seen with MKL 2024 on AMD's Zen 4, in one width of three), for its kernels differ at the edges of what they
// get. Large enough that what is done once for each tile, packing its part of the weight, does not show.
Tile TileOf(int64_t rows, int64_t inner, int64_t columns) {
  constexpr int64_t kLeastRows = 256, kColumns = 512, kProducts = 4 << 20, kStep = 16;
  const int64_t width = columns < 2 * kColumns ? columns : kColumns;
  const int64_t least = std::max(kLeastRows, kProducts / std::max<int64_t>(inner * width, 1));
  const int64_t tiles = std::max<int64_t>(rows / least, 1);
  const int64_t even = (rows + tiles - 1) / tiles;
  return {std::max((even + kStep - 1) / kStep, int64_t{1}) * kStep, width};
}

// Products of float16 are made in float32: the library's have, on processors without such instructions, loops of one
// number at a time.
at::Tensor Wide(const at::Tensor& x) { return x.scalar_type() == at::kHalf ? x.to(at::kFloat) : x; }

// x: (rows, inner), w: (inner, columns), bias: (columns) -> x w + bias
at::Tensor Multiply(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& bias) {
  if (x.scalar_type() == at::kHalf)
    return Multiply(Wide(x), Wide(w), bias ? std::optional(Wide(*bias)) : std::nullopt).to(at::kHalf);
  const int64_t rows = x.size(0), columns = w.size(1);
  const Tile tile = TileOf(rows, x.size(1), columns);
  at::Tensor y = at::empty({rows, columns}, x.options());
  const int64_t across = (columns + tile.columns - 1) / tile.columns;
  ParallelBlocks((rows + tile.rows - 1) / tile.rows * across, 1, [&](int64_t i, int64_t) {
    const int64_t row = i / across * tile.rows, column = i % across * tile.columns;
    const int64_t height = std::min(tile.rows, rows - row), width = std::min(tile.columns, columns - column);
    at::Tensor part = y.narrow(0, row, height).narrow(1, column, width);
    const at::Tensor left = x.narrow(0, row, height), right = w.narrow(1, column, width);
    bias ? at::addmm_out(part, bias->narrow(0, column, width), left, right) : at::mm_out(part, left, right);
  });
  return y;
}

// dy^T x.  dy: (rows, outputs), x: (rows, inputs) -> (outputs, inputs)
at::Tensor WeightGradient(const at::Tensor& dy, const at::Tensor& x) {
  if (x.scalar_type() == at::kHalf) return WeightGradient(Wide(dy), Wide(x)).to(at::kHalf);
  at::Tensor gradient = at::empty({dy.size(1), x.size(1)}, dy.options());
  const bool by_outputs = dy.size(1) >= x.size(1);
  ParallelBlocks(std::max(dy.size(1), x.size(1)), kWidthPerTask, [&](int64_t begin, int64_t size) {
    at::Tensor part = gradient.narrow(by_outputs ? 0 : 1, begin, size);
    by_outputs ? at::mm_out(part, dy.narrow(1, begin, size).t(), x)
               : at::mm_out(part, dy.t(), x.narrow(1, begin, size));
  });
  return gradient;
}

// x: (rows, n), w: (n, 1) -> x w, in x's type. Not the library's product: it cuts the rows for its threads, and what is
// left over at a cut is computed in another order.
at::Tensor TimesOneColumn(const at::Tensor& x, const at::Tensor& w) {
  const at::Tensor row = w.t().to(at::kFloat);
  at::Tensor y = at::empty({x.size(0), 1}, x.options());
  ParallelBlocks(x.size(0), kRowsPerTask, [&](int64_t begin, int64_t size) {
    y.narrow(0, begin, size).copy_((x.narrow(0, begin, size).to(at::kFloat) * row).sum(1, true));
  });
  return y;
}

// x: (..., inputs), weight: (outputs, inputs)
at::Tensor Forward(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = weight.size(0);
  const at::Tensor rows = x.reshape({-1, weight.size(1)});
  if (weight.size(0) != 1) return Multiply(rows, weight.t(), bias).view(shape);
  const at::Tensor y = TimesOneColumn(rows, weight.t()).view(shape);
  return bias ? y + *bias : y;
}

struct ProductFunction : Function<ProductFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias) {
    ctx->save_for_backward({x, weight});
    ctx->saved_data["bias"] = bias.has_value();
    return Forward(x, weight, bias);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const at::Tensor dy = grads[0].reshape({-1, weight.size(0)});
    at::Tensor dx, dw, db;
    if (ctx->needs_input_grad(0))
      dx = (weight.size(1) == 1 ? TimesOneColumn(dy, weight) : Multiply(dy, weight, {})).view(x.sizes());
    if (ctx->needs_input_grad(1)) dw = WeightGradient(dy, x.reshape({-1, weight.size(1)}));
    // An absent bias is no input: it has no place among those that may need a gradient.
    if (ctx->saved_data["bias"].toBool() && ctx->needs_input_grad(2)) db = SumRows(dy);
    return {dx, dw, db};
  }
};

}  // namespace

at::Tensor Product(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  if (!x.is_cpu()) return device_ops::Product(x, weight, bias);
  return ProductFunction::apply(x, weight, bias);
}

}  // namespace trainyard
