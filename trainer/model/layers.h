// Layers: thin, over ATen's operations, with torch.nn's names and initialisation. Each declares its parameters where it
// is made and computes with a Pass. Immutable after construction.
//
// Legend: B batch, N rows, C channels, D width, T positions, H heads.
#ifndef TRAINYARD_TRAINER_MODEL_LAYERS_H_
#define TRAINYARD_TRAINER_MODEL_LAYERS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "trainer/model/dropout_draw.h"
#include "trainer/model/pass.h"

namespace trainyard {

struct LinearOptions {
  bool bias = true;
  // Default: torch.nn.Linear's, both uniform in +-1/sqrt(inputs).
  std::optional<Initial> weight_initial, bias_initial;
  ParameterOptions parameters;
};

// (..., inputs) -> (..., outputs). Names: weight (outputs, inputs), bias (outputs).
struct Linear {
  Linear(const Scope& s, int64_t inputs, int64_t outputs, const LinearOptions& options = {});
  at::Tensor operator()(const Pass& pass, const at::Tensor& x) const;
  // The type that it takes and gives.
  at::ScalarType ComputeType(const Pass& pass) const { return pass[weight].scalar_type(); }
  ParameterId weight;
  std::optional<ParameterId> bias;
};

// A Linear that is not trained, plus scale x B(A(x)) of rank r (Hu et al., arXiv 2106.09685). Names: base_layer.weight
// (bfloat16, frozen), base_layer.bias, lora_A.weight (r, inputs) as torch.nn.Linear's, lora_B.weight (outputs, r) zero.
struct LoRALinear {
  LoRALinear(const Scope& s, int64_t inputs, int64_t outputs, int64_t rank, double scale, bool bias = true);
  at::Tensor operator()(const Pass& pass, const at::Tensor& x) const;
  Linear base, a, b;
  double scale;
};

// Indices (...) int64 -> (..., width). Name: weight (count, width), normal with the deviation.
struct Embedding {
  Embedding(const Scope& s, int64_t count, int64_t width, double deviation = 1);
  at::Tensor operator()(const Pass& pass, const at::Tensor& indices) const;
  ParameterId weight;
};

// Over the last dimension; weights and statistics in float32. Names: weight, bias (width).
struct LayerNorm {
  LayerNorm(const Scope& s, int64_t width, double eps = 1e-5);
  at::Tensor operator()(const Pass& pass, const at::Tensor& x) const;
  ParameterId weight, bias;
  int64_t width;
  double eps;
};

// x / sqrt(mean of x^2 + eps) x weight (Zhang and Sennrich, arXiv 1910.07467). Name: weight (width).
struct RMSNorm {
  RMSNorm(const Scope& s, int64_t width, double eps = 1e-6);
  at::Tensor operator()(const Pass& pass, const at::Tensor& x) const;
  ParameterId weight;
  double eps;
};

// x: (B, C, ...). Names: weight, bias (C).
struct GroupNorm {
  GroupNorm(const Scope& s, int64_t groups, int64_t channels, double eps = 1e-5);
  at::Tensor operator()(const Pass& pass, const at::Tensor& x) const;
  ParameterId weight, bias;
  int64_t groups;
  double eps;
};

// x: (B, C, ...). Names: weight, bias (C), and the buffers running_mean, running_var (C; over ranks their mean) and
// num_batches_tracked. In training the statistics are the micro-batch's and the running ones are staged; an evaluation
// uses the running ones. Samples of a micro-batch interact: a task that has one is batch_coupled.
struct BatchNorm {
  BatchNorm(const Scope& s, int64_t channels, double eps = 1e-5, double momentum = 0.1);
  at::Tensor operator()(const Pass& pass, const at::Tensor& x) const;
  ParameterId weight, bias;
  BufferId mean, variance, batches;
  double eps, momentum;
};

struct ConvOptions {
  int64_t kernel = 3, stride = 1, padding = 0;
  bool bias = true;
};

// x: (B, inputs, spatial...) with two or three spatial dimensions. Names: weight (outputs, inputs, kernel...), bias;
// torch.nn.Conv2d's and Conv3d's initialisation.
struct Convolution {
  Convolution(const Scope& s, int dimensions, int64_t inputs, int64_t outputs, const ConvOptions& options);
  at::Tensor operator()(const Pass& pass, const at::Tensor& x) const;
  ParameterId weight;
  std::optional<ParameterId> bias;
  std::vector<int64_t> stride, padding;
};

// Where something is dropped with probability p in training.
struct Dropout {
  Dropout(const Scope& s, double p) : p(p), place(s.NextPlace()) {}
  // For operations that drop inside.
  DropoutDraw Draw(const Pass& pass) const {
    return pass.training() ? DropoutDraw{pass.Fork(place), p} : DropoutDraw{};
  }
  // Elements of x, and the others scaled by 1 / (1 - p).
  at::Tensor operator()(const Pass& pass, const at::Tensor& x) const;
  double p;
  Place place;
};

// Whole samples of x: (B, ...) (stochastic depth; Huang et al., arXiv 1603.09382).
struct DropPath {
  DropPath(const Scope& s, double p) : p(p), place(s.NextPlace()) {}
  at::Tensor operator()(const Pass& pass, const at::Tensor& x) const;
  double p;
  Place place;
};

// Self-attention in which a position sees itself and what comes before. qkv: (B, T, 3 D) -> (B, T, D); of any type that
// kernels have.
at::Tensor CausalAttention(const at::Tensor& qkv, int64_t heads, const DropoutDraw& dropout);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MODEL_LAYERS_H_
