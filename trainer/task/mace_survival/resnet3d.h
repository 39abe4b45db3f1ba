// The 3-D ResNet of MONAI (monai.networks.nets.ResNet; He et al., arXiv 1512.03385; Hara et al., arXiv 1711.09577) with
// its names and initialisation: 7 x 7 x 7 first, shortcuts of kind B with a bias, basic blocks up to 34 layers and
// bottlenecks beyond. Its batch norms are over the global batch, under the same names.
//
// Legend: B samples, X Y Z places, C channels.
#ifndef TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_RESNET3D_H_
#define TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_RESNET3D_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "trainer/model/global_batch_norm.h"
#include "trainer/model/layers.h"

namespace trainyard::mace {

struct ResNetShape {
  int64_t layers = 18;       // 10, 18, 34 or 50
  int64_t width = 64;        // channels of the first stage; MONAI's widen_factor is width / 64
  int64_t first_stride = 1;  // MONAI's conv1_t_stride
};

// (B, inputs, X, Y, Z) -> (B, outputs, ...), without a bias but for shortcuts; normal with deviation
// sqrt(2 / (outputs kernel^3)).
struct Conv3d {
  Conv3d(const Scope& s, int64_t inputs, int64_t outputs, const ConvOptions& options);
  at::Tensor operator()(const Pass& pass, const at::Tensor& x) const;
  ParameterId weight;
  std::optional<ParameterId> bias;
  std::vector<int64_t> stride, padding;
};

struct NormedConv {
  Conv3d conv;
  GlobalBatchNorm norm;
};

// One residual block, a unit.
struct ResidualBlock {
  ResidualBlock(const Scope& s, int64_t inputs, int64_t planes, int64_t stride, bool bottleneck);
  at::Tensor operator()(const Pass& pass, const at::Tensor& x, GlobalBatch& batch) const;

  UnitId unit;
  std::vector<NormedConv> convs;  // two or three, one after the other
  std::optional<NormedConv> shortcut;
};

// Immutable.
class ResNet3d {
 public:
  ResNet3d(const Scope& s, const ResNetShape& shape);
  // x: (B, 1, X, Y, Z) float32 -> pooled features (B, features()) float32.
  at::Tensor operator()(const Pass& pass, const at::Tensor& x, GlobalBatch& batch) const;
  int64_t features() const { return features_; }

 private:
  // Convolution, norm and pooling. Its first result, the largest tensor of all, is gone with it where nobody needs it.
  at::Tensor Stem(const Pass& pass, const at::Tensor& x, GlobalBatch& batch) const;

  Scope stem_;
  NormedConv first_;
  std::vector<ResidualBlock> blocks_;
  int64_t features_ = 0;
};

// Operations of forward and backward for one sample of so many voxels a side, but for norms and pooling.
double FlopsOf(const ResNetShape& shape, const std::vector<int64_t>& volume);

}  // namespace trainyard::mace

#endif  // TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_RESNET3D_H_
