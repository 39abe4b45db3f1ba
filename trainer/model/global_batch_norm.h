// Batch normalisation over the global batch (Ioffe and Szegedy, arXiv 1502.03167; over ranks as
// torch.nn.SyncBatchNorm).
//
// Legend: B samples of a rank, C channels.
#ifndef TRAINYARD_TRAINER_MODEL_GLOBAL_BATCH_NORM_H_
#define TRAINYARD_TRAINER_MODEL_GLOBAL_BATCH_NORM_H_

#include <ATen/core/Tensor.h>

#include "trainer/model/batch_moments.h"
#include "trainer/model/normalise.h"
#include "trainer/model/pass.h"

namespace trainyard {

// A forward's samples, and what must be part of its loss.
struct GlobalBatch {
  at::Tensor present;  // (B) float32: 1, or 0 for a sample that could not be read and counts nothing
  at::Tensor nothing;  // a scalar 0, to be added to the loss: gathers without rows of their own hang on it
};

// Takes part with no rows in a gather that this forward has no use for. Every forward makes every gather.
void TakePartInGather(const Pass& pass, GatherId gather, int64_t columns, GlobalBatch& batch);

// x: (B, C, ...) of two or three spatial dimensions. Names: weight, bias (C), and the buffers running_mean, running_var
// (C) and num_batches_tracked, as torch.nn.BatchNorm3d's.
//
// In training the statistics are those of all samples of the step on all ranks, each with the same weight, by one
// gather of 2 C + 1 numbers a sample: so a step is the same for every world size, up to the order of sums in what comes
// before. An evaluation uses the running ones. So does training where nothing before it is trained: then they stay as
// they are, and a frozen part of a network gives what it gives in an evaluation.
//
// The same bits for any number of threads. A gather may not be made within a unit, so a call is two: Moments between
// units, and the operation within the one that holds its parameters.
struct GlobalBatchNorm {
  // Declares a gather: REQUIRES that layers are made in the order of forward.
  GlobalBatchNorm(const Scope& s, int64_t channels, double eps = 1e-5, double momentum = 0.1);
  // Mean and variance (biased) to normalise with: (2, C) float32, and x to go on with (batch_moments.h). Stages the
  // running statistics.
  WithMoments Moments(const Pass& pass, const at::Tensor& x, GlobalBatch& batch) const;
  // (x - mean) / sqrt(variance + eps) weight + bias, and what follows (normalise.h): computed in float32, of x's type.
  at::Tensor operator()(const Pass& pass, const at::Tensor& x, const at::Tensor& moments,
                        AfterNorm after = AfterNorm::kNothing) const;

  int64_t channels;
  double eps, momentum;
  ParameterId weight, bias;
  BufferId mean, variance, batches;
  GatherId gather;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MODEL_GLOBAL_BATCH_NORM_H_
