// How alike two volumes are.
#ifndef TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_IMAGE_METRICS_H_
#define TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_IMAGE_METRICS_H_

#include <ATen/core/Tensor.h>

namespace trainyard::hvc {

// Of volumes (D, H, W) of [0, 1], in double precision. Infinite for equal ones.
double Psnr(const at::Tensor& a, const at::Tensor& b);

// Mean structural similarity (Wang et al., 2004) in three dimensions: windows of 11^3 weighted by a normal distribution
// of deviation 1.5, K1 = 0.01, K2 = 0.03, range 1; where windows fit into the volume. As scikit-image's
// structural_similarity(gaussian_weights=True, sigma=1.5, use_sample_covariance=False, data_range=1).
// REQUIRES: sides of at least 11.
double Ssim(const at::Tensor& a, const at::Tensor& b);

}  // namespace trainyard::hvc

#endif  // TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_IMAGE_METRICS_H_
