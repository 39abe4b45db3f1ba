// CPU kernels on plain memory: what the step spends its time in besides matrix products. No
// LibTorch. The same source is compiled for three instruction sets and chosen once at start, so
// results are bit-reproducible on one type of CPU, and the banner names which one is used.
//
// Legend: B batch, C context rows, Q query rows, R = C + Q rows of keys and values, H heads,
// E head width, N rows, D columns.
//
// Dropout is counter-based: an element's fate is a hash of (key, row, column), so nothing is stored
// and backward repeats forward's mask. `keep_scale` is 1 / (1 - p); p = 0 keeps everything.
#ifndef TRAINYARD_TRAINER_KERNELS_KERNELS_H_
#define TRAINYARD_TRAINER_KERNELS_KERNELS_H_

#include <array>
#include <cstdint>

namespace trainyard::kernels {

// bfloat16 as the upper half of a float, rounded to nearest even.
struct Bf16 {
  uint16_t bits;
};

// IEEE 754's binary16, rounded to nearest even; what is too large for it becomes infinite.
struct Fp16 {
  uint16_t bits;
};

struct Dropout {
  uint64_t key = 0;
  float p = 0;
};

// Which rows there are, and what each attends to.
enum class Sight {
  kPrefix,           // context rows, to the context up to themselves; query rows, to their first `visible` context rows
                     // and to themselves, never to other queries
  kPrefixOfQueries,  // of those the query rows alone; keys and values are of all R rows
  kEverything,       // query rows, to all of C keys; R is C, and `visible` is not read
};

// Attention of `rows` rows: R of kPrefix, else Q.
//   q: row r of sample b at q + (b * rows + r) * q_stride + h * E
//   k, v: all R rows, with kv_stride.
//   visible: (B, Q), each in [0, C].
//   out: (B, rows, H * E) contiguous; lse: (B, H, rows), the log of the sum of exponentials.
struct AttentionShape {
  int64_t B, C, Q, H, E;
  int64_t q_stride, kv_stride;
  Sight sight;
  Dropout dropout;
};

template <class T>
struct AttentionArgs {
  const T *q, *k, *v;
  const int32_t* visible;
  T* out;
  float* lse;
  // Backward only. dq has q's layout and strides, dk and dv those of k and v; all are overwritten.
  const T* dout;
  T *dq, *dk, *dv;
};

// y = LayerNorm(z) * gamma + beta over D, where z keeps x + dropout(r). Without r (null), z is x and is not written.
template <class T>
struct NormArgs {
  int64_t D;
  float eps;
  Dropout dropout;
  const T *x, *r;
  const float *gamma, *beta;
  T *y, *z;
  float *mean, *rstd;  // (N)
  // Backward only: dx is the gradient of x, dr of r (may be the same memory without dropout); dgamma and dbeta (D) are
  // added to. Uses neither x nor r.
  const T* dy;
  T *dx, *dr;
  float *dgamma, *dbeta;
};

// Gelu (Hendrycks and Gimpel, arXiv 1606.08415) with the normal distribution function, or its approximation by tanh.
enum class GeluForm { kExact, kTanh };

// y = dropout(gelu(x)).
template <class T>
struct GeluArgs {
  GeluForm form;
  int64_t D;
  Dropout dropout;
  const T* x;
  T* y;
  const T* dy;
  T* dx;
};

// One step of AdamW (Loshchilov and Hutter, arXiv 1711.05101) in torch.optim.AdamW's order. Where there is an average
// of the parameters (else null), it then moves by `average_rate` of the way to their new values.
struct AdamWArgs {
  float *param, *exp_avg, *exp_avg_sq, *average;
  const float* grad;
  float grad_scale;  // gradients are multiplied by it first
  // 1 - beta1 and 1 - beta2 of the betas as they are given: in float32 the second would be off by 1e-5 of itself.
  float lr, exp_avg_rate, beta2, exp_avg_sq_rate, eps, weight_decay;
  float bias_correction1, bias_correction2_sqrt;  // 1 - beta1^t, sqrt(1 - beta2^t)
  float average_rate;
};

// The largest of each window of 3 x 3 x 3 places, two apart, with one place of padding around: places 2 i - 1 to 2 i +
// 1 of each axis. NaN is larger than all; of equal ones, and 0 and -0 are, the first.
//   x: (channels, D, H, W); y, places: (channels, half of each, rounded up). places: where in its channel of x it is.
template <class T>
struct MaxPoolArgs {
  std::array<int64_t, 3> size;  // D, H, W; D H W below 2^31
  const T* x;
  T* y;
  int32_t* places;
};

// y = (x - mean) slope + shift of a plane, the places of one channel of one sample; with `relu` at least 0.
struct PlaneNorm {
  float mean, slope, shift;
  bool relu;
};

// What is there for each type of activations.
template <class T>
struct Typed {
  // Heads [begin, end) of the B * H.
  void (*attention_forward)(const AttentionShape&, const AttentionArgs<T>&, int64_t begin, int64_t end);
  void (*attention_backward)(const AttentionShape&, const AttentionArgs<T>&, int64_t begin, int64_t end);
  // Rows [begin, end).
  void (*norm_forward)(const NormArgs<T>&, int64_t begin, int64_t end);
  void (*norm_backward)(const NormArgs<T>&, int64_t begin, int64_t end);
  void (*gelu_forward)(const GeluArgs<T>&, int64_t begin, int64_t end);
  void (*gelu_backward)(const GeluArgs<T>&, int64_t begin, int64_t end);
  // Of a plane of n >= 1 values: the mean and the biased variance; dx += to_mean + to_variance (x - mean), rounded
  // once.
  void (*plane_moments)(const T* x, int64_t n, float* mean, float* variance);
  void (*plane_moments_backward)(const T* x, int64_t n, float mean, float to_mean, float to_variance, T* dx);
  void (*plane_norm_forward)(const PlaneNorm&, const T* x, int64_t n, T* y);
  // With g, what of dy comes through the relu: dx = g slope, the sums of g and of g (x - mean).
  void (*plane_norm_backward)(const PlaneNorm&, const T* x, const T* dy, int64_t n, T* dx, double* sum,
                              double* sum_apart);
  // Channels [begin, end).
  void (*max_pool)(const MaxPoolArgs<T>&, int64_t begin, int64_t end);
  // dx[places[i]] += dy[i] for each i in [0, n), one after the other, each sum rounded.
  void (*max_pool_backward)(const T* dy, const int32_t* places, int64_t n, T* dx);
  // y = x, rounded.
  void (*round)(const float* x, T* y, int64_t n);
  // y += x.
  void (*add)(const T* x, float* y, int64_t n);
};

struct Table {
  const char* name;  // "avx512", "avx2" or "baseline"
  Typed<float> fp32;
  Typed<Bf16> bf16;
  Typed<Fp16> fp16;
  // Elements [begin, end), multiples of 64.
  void (*adamw)(const AdamWArgs&, int64_t begin, int64_t end);
  // sums[i] = sum of squares of x[64 i, 64 i + 64) in fp64, for i in [begin, end).
  void (*block_squares)(const float* x, double* sums, int64_t begin, int64_t end);
};

// The best table that this CPU can run.
const Table& Kernels();

}  // namespace trainyard::kernels

#endif  // TRAINYARD_TRAINER_KERNELS_KERNELS_H_
