// What layers do with every row of a tensor alike. Gradients are sums over the rows: the same bits for any number of
// threads, where LibTorch's own cut such sums by threads.
#ifndef TRAINYARD_TRAINER_MODEL_ROWS_H_
#define TRAINYARD_TRAINER_MODEL_ROWS_H_

#include <ATen/core/Tensor.h>

namespace trainyard {

// (rows, columns) -> (columns), in x's type. Has no gradient.
at::Tensor SumRows(const at::Tensor& x);

// x: (..., columns), w: (columns), of one type -> x * w.
at::Tensor ScaleRows(const at::Tensor& x, const at::Tensor& w);

// x: (..., *shape of r), of one type -> x with r added to each part of that shape.
at::Tensor AddToEach(const at::Tensor& x, const at::Tensor& r);

// x, y: (B, rows, columns), gate: (B, columns), a row for each sample, of one type -> x + y * gate.
at::Tensor AddGated(const at::Tensor& x, const at::Tensor& y, const at::Tensor& gate);

// x: (B, ...) -> (B): the sum of each sample, in x's type.
at::Tensor SumOfEach(const at::Tensor& x);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MODEL_ROWS_H_
