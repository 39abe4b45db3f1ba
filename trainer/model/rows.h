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

// The same with a row for each sample.  x: (B, rows, columns), w: (B, columns), of one type -> x * w, and x + w.
at::Tensor ScaleSamples(const at::Tensor& x, const at::Tensor& w);
at::Tensor AddToSamples(const at::Tensor& x, const at::Tensor& w);

// x: (B, ...) -> (B): the sum of each sample, in x's type.
at::Tensor SumOfEach(const at::Tensor& x);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MODEL_ROWS_H_
