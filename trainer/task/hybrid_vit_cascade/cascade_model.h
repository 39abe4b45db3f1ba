// The networks of the cascade, with the original's names for what it has (docs/formats.md lists them). Each is a unit
// or more: a transformer block is one.
//
// Legend: B batch, V views, F channels of an X-ray's features, h its rows and columns, S voxels of a side, G tokens of
// a side, N = G^3, D width.
#ifndef TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_CASCADE_MODEL_H_
#define TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_CASCADE_MODEL_H_

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "trainer/model/layers.h"
#include "trainer/task/hybrid_vit_cascade/diffusion.h"
#include "trainer/task/hybrid_vit_cascade/options.h"

namespace trainyard::hvc {

// Shared by the stages, trained in the first one alone.
struct XrayEncoder {
  XrayEncoder(const Scope& root, int64_t dim);
  // xrays: (B, V, 1, 8 h, 8 h) -> (B, V, F, h, h)
  at::Tensor Features(const Pass& pass, const at::Tensor& xrays) const;
  // What tells a stage the time and the X-rays as a whole. t: (B) of [0, 1) -> (B, 2 F)
  at::Tensor Condition(const Pass& pass, const at::Tensor& features, const at::Tensor& t) const;

  Scope unit;
  Convolution conv1, conv2, conv3;
  Linear embed1, embed2, time1, time2, to_cond;
};

// A volume from features: each pixel's weight of each depth, times one number of the pixel. The original makes
// (B, F, S, h, h) of features and weights, and of that one channel with a 1 x 1 x 1 convolution; which commutes with
// the weights, since they are the same for all channels.
struct DepthLifting {
  DepthLifting(const Scope& s, int64_t dim, int64_t size);
  // features: (B, F, h, h) -> (B, S, h, h, 1), channels last.
  at::Tensor Lift(const Pass& pass, const at::Tensor& features) const;

  int64_t size;
  Convolution conv1, conv2, conv3, mask;
  GroupNorm norm1, norm2;
  ParameterId to_volume_weight, to_volume_bias;  // (1, F, 1, 1, 1), (1)
};

// Self-attention and MLP with a scale, shift and gate of the condition, which starts as nothing (AdaLN-zero; Peebles
// and Xie, arXiv 2212.09748); between them attention to the X-rays' pixels.
struct Block {
  Block(const Scope& s, const StageShape& shape, int64_t context_dim, int64_t condition_dim, double dropout);
  // x: (B, N, D), context: (B, h^2, F), condition: (B, C) -> (B, N, D)
  at::Tensor operator()(const Pass& pass, const at::Tensor& x, const at::Tensor& context,
                        const at::Tensor& condition) const;

  UnitId unit;
  int64_t dim, heads;
  Linear modulation, qkv, self_out, q, kv, cross_out, up, down;
  LayerNorm norm1, norm2, norm3;
  Dropout self_weights, self_output, cross_weights, cross_output, hidden_dropout, mlp_output;
};

// What a stage is asked about.
struct NoisedVolume {
  at::Tensor x;         // (B, 1, S, S, S) float32
  at::Tensor t;         // (B) int64
  at::Tensor previous;  // (B, 1, S, S, S): the volume of the stage before, up-sampled; undefined in the first
};

struct EncodedXrays {
  at::Tensor features;  // (B, F, h, h): the mean over the views
  at::Tensor context;   // (B, K, F): what tokens attend to, pixels of the views' mean or of every view
  at::Tensor prior;     // (B, 1, S, S, S): what was lifted from them
};

// One stage of the cascade.
class StageNet {
 public:
  StageNet(const Scope& root, const ModelShape& shape, size_t index);
  // 0.1 of it is added to the volume that comes in.
  at::Tensor Prior(const Pass& pass, const at::Tensor& features) const;
  // (B, 1, S, S, S) float32. `condition`: XrayEncoder's.
  at::Tensor Forward(const Pass& pass, const NoisedVolume& volume, const EncodedXrays& xrays,
                     const at::Tensor& condition) const;

  const StageShape& shape() const { return shape_; }

 private:
  struct Embedding {
    std::vector<Convolution> convolutions;
    std::vector<GroupNorm> norms;  // one fewer where the last convolution only widens
  };
  at::Tensor Tokens(const Pass& pass, const at::Tensor& x) const;
  at::Tensor Volume(const Pass& pass, const at::Tensor& tokens) const;

  StageShape shape_;
  int64_t grid_;
  Head head_;
  bool places_;
  Scope lifting_unit_, embedding_unit_, head_unit_;
  DepthLifting lifting_;
  Embedding embedding_;
  ParameterId positions_;  // (1, N, D)
  std::optional<Linear> previous_;
  std::vector<Block> blocks_;
  LayerNorm norm_;
  Linear output_;
};

// All stages. Immutable.
class CascadeModel {
 public:
  CascadeModel(const Scope& root, const ModelShape& shape, int64_t timesteps);

  const NoiseSchedule& schedule() const { return schedule_; }
  const std::vector<StageNet>& stages() const { return stages_; }

  // What does not depend on the time: once for every volume.
  EncodedXrays Encode(const Pass& pass, size_t stage, const at::Tensor& xrays) const;
  // v of the volume, float32: Expectation's, and what the network says in units of Uncertainty.
  at::Tensor Velocity(const Pass& pass, size_t stage, const NoisedVolume& volume, const EncodedXrays& xrays) const;
  // The deviation of v from Expectation, (B, 1, 1, 1, 1).
  at::Tensor Uncertainty(size_t stage, const at::Tensor& t) const;

 private:
  // v if voxels were drawn independently from a normal distribution: around the previous volume with the deviation
  // model.detail, in the first stage around model.mean with model.deviation. A token grid cannot show a volume's finest
  // detail and its noise; without this the previous volume's detail would be lost, and the noise that a network cannot
  // name would stay in what is sampled. After the preconditioning of Karras et al. (arXiv 2206.00364), of which this
  // and Uncertainty are the case for v.
  at::Tensor Expectation(size_t stage, const NoisedVolume& volume) const;
  double Deviation(size_t stage) const { return stage > 0 ? detail_ : deviation_; }

  NoiseSchedule schedule_;
  Context context_;
  double mean_, deviation_, detail_;
  XrayEncoder encoder_;
  std::vector<StageNet> stages_;
};

// (B, 1, s, s, s) -> (B, 1, size, size, size), a stage's volume for the next one: the inverse of how volumes are made
// smaller, between the middles of voxels.
at::Tensor UpSampled(const at::Tensor& volume, int64_t size);

// Where each place of a grid is, in sines and cosines along each axis: (sizes' product, dim) float32, the last axis
// fastest. Frequencies rise geometrically to one turn in two places; channels that no axis gets are 0.
at::Tensor PlaceCodes(const std::vector<int64_t>& sizes, int64_t dim);

// The patterns of what stage `index` trains: its own network, and the first one what all share.
std::vector<std::string> TrainedBy(size_t index);

}  // namespace trainyard::hvc

#endif  // TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_CASCADE_MODEL_H_
