// Compiled once per instruction set; TRAINYARD_KERNELS_NAMESPACE names the copy.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "trainer/kernels/attention_impl.h"
#include "trainer/kernels/kernels.h"
#include "trainer/kernels/max_pool_impl.h"
#include "trainer/kernels/plane_norm_impl.h"
#include "trainer/kernels/scalar_math.h"

namespace trainyard::kernels {
// Everything below has internal linkage: a shared inline function compiled for a newer instruction
// set could otherwise be the copy that the linker keeps for all.
namespace {

// ---- Dropout, residual, LayerNorm --------------------------------------------------------------

template <bool kDrops, class T>
void NormForwardRows(const NormArgs<T>& a, int64_t begin, int64_t end) {
  const int64_t D = a.D;
  const float inverse = 1.0f / static_cast<float>(D);
  for (int64_t n = begin; n < end; ++n) {
    const T *x = a.x + n * D, *r = a.r ? a.r + n * D : nullptr;
    T *y = a.y + n * D, *z = a.z + n * D;
    if (r && kDrops) {
      const DropoutRow<kDrops> drop(a.dropout, static_cast<uint64_t>(n));
#pragma omp simd
      for (int64_t d = 0; d < D; ++d) Store(Load(x[d]) + Load(r[d]) * drop.Factor(static_cast<uint32_t>(d)), z[d]);
    } else if (r) {
#pragma omp simd
      for (int64_t d = 0; d < D; ++d) Store(Load(x[d]) + Load(r[d]), z[d]);
    }
    float sum = 0, square = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t d = 0; d < D; ++d) sum += Load(z[d]);
    const float mean = sum * inverse;
#pragma omp simd reduction(+ : square)
    for (int64_t d = 0; d < D; ++d) square += (Load(z[d]) - mean) * (Load(z[d]) - mean);
    const float rstd = 1.0f / std::sqrt(square * inverse + a.eps);
    a.mean[n] = mean;
    a.rstd[n] = rstd;
#pragma omp simd
    for (int64_t d = 0; d < D; ++d) Store((Load(z[d]) - mean) * rstd * a.gamma[d] + a.beta[d], y[d]);
  }
}

template <class T>
void NormForward(const NormArgs<T>& a, int64_t begin, int64_t end) {
  WithDropout(a.dropout, [&]<bool kDrops>() { NormForwardRows<kDrops>(a, begin, end); });
}

template <bool kDrops, class T>
void NormBackwardRows(const NormArgs<T>& a, int64_t begin, int64_t end) {
  const int64_t D = a.D;
  const float inverse = 1.0f / static_cast<float>(D);
  for (int64_t n = begin; n < end; ++n) {
    const T *z = a.z + n * D, *dy = a.dy + n * D;
    T *dx = a.dx + n * D, *dr = a.dr + n * D;
    const float mean = a.mean[n], rstd = a.rstd[n];
    float sum = 0, dot = 0;
#pragma omp simd reduction(+ : sum, dot)
    for (int64_t d = 0; d < D; ++d) {
      const float g = Load(dy[d]) * a.gamma[d], normal = (Load(z[d]) - mean) * rstd;
      sum += g;
      dot += g * normal;
    }
    sum *= inverse;
    dot *= inverse;
#pragma omp simd
    for (int64_t d = 0; d < D; ++d) {
      const float g = Load(dy[d]), normal = (Load(z[d]) - mean) * rstd;
      a.dgamma[d] += g * normal;
      a.dbeta[d] += g;
    }
    const DropoutRow<kDrops> drop(a.dropout, static_cast<uint64_t>(n));
#pragma omp simd
    for (int64_t d = 0; d < D; ++d) {
      const float normal = (Load(z[d]) - mean) * rstd;
      const float dz = rstd * (Load(dy[d]) * a.gamma[d] - sum - normal * dot);
      Store(dz, dx[d]);
      Store(dz * drop.Factor(static_cast<uint32_t>(d)), dr[d]);
    }
  }
}

template <class T>
void NormBackward(const NormArgs<T>& a, int64_t begin, int64_t end) {
  WithDropout(a.dropout, [&]<bool kDrops>() { NormBackwardRows<kDrops>(a, begin, end); });
}

// ---- GELU and dropout --------------------------------------------------------------------------

// Value(x) is gelu(x), Slope(x) its derivative.
struct ExactGelu {
  static float Value(float x) { return x * NormalCdf(x, Exp(-0.5f * x * x)); }
  static float Slope(float x) {
    constexpr float kInverseSqrt2Pi = 0.3989422804f;
    const float e = Exp(-0.5f * x * x);
    return NormalCdf(x, e) + x * e * kInverseSqrt2Pi;
  }
};

// 0.5 x (1 + tanh u) = x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3).
struct TanhGelu {
  static constexpr float kTwiceScale = 1.5957691216f, kCubic = 0.044715f;
  static float Gate(float x) {
    const float power = -kTwiceScale * (x + kCubic * x * x * x);
    return 1.0f / (1.0f + Exp(power < 80.0f ? power : 80.0f));
  }
  static float Value(float x) { return x * Gate(x); }
  static float Slope(float x) {
    const float gate = Gate(x);
    return gate + x * gate * (1.0f - gate) * kTwiceScale * (1.0f + 3.0f * kCubic * x * x);
  }
};

template <class Form, bool kDrops, class T>
void GeluForwardRows(const GeluArgs<T>& a, int64_t begin, int64_t end) {
  for (int64_t n = begin; n < end; ++n) {
    const T* x = a.x + n * a.D;
    T* y = a.y + n * a.D;
    const DropoutRow<kDrops> drop(a.dropout, static_cast<uint64_t>(n));
#pragma omp simd
    for (int64_t d = 0; d < a.D; ++d) {
      Store(Form::Value(Load(x[d])) * drop.Factor(static_cast<uint32_t>(d)), y[d]);
    }
  }
}

template <class Form, bool kDrops, class T>
void GeluBackwardRows(const GeluArgs<T>& a, int64_t begin, int64_t end) {
  for (int64_t n = begin; n < end; ++n) {
    const T *x = a.x + n * a.D, *dy = a.dy + n * a.D;
    T* dx = a.dx + n * a.D;
    const DropoutRow<kDrops> drop(a.dropout, static_cast<uint64_t>(n));
#pragma omp simd
    for (int64_t d = 0; d < a.D; ++d) {
      Store(Load(dy[d]) * drop.Factor(static_cast<uint32_t>(d)) * Form::Slope(Load(x[d])), dx[d]);
    }
  }
}

template <class T>
void GeluForward(const GeluArgs<T>& a, int64_t begin, int64_t end) {
  WithDropout(a.dropout, [&]<bool kDrops>() {
    a.form == GeluForm::kExact ? GeluForwardRows<ExactGelu, kDrops>(a, begin, end)
                               : GeluForwardRows<TanhGelu, kDrops>(a, begin, end);
  });
}

template <class T>
void GeluBackward(const GeluArgs<T>& a, int64_t begin, int64_t end) {
  WithDropout(a.dropout, [&]<bool kDrops>() {
    a.form == GeluForm::kExact ? GeluBackwardRows<ExactGelu, kDrops>(a, begin, end)
                               : GeluBackwardRows<TanhGelu, kDrops>(a, begin, end);
  });
}

// ---- Optimizer, norms, conversion --------------------------------------------------------------

template <bool kAverages>
void AdamWElements(const AdamWArgs& a, int64_t begin, int64_t end) {
  const float decay = 1.0f - a.lr * a.weight_decay, step = a.lr / a.bias_correction1;
  float *param = a.param, *m = a.exp_avg, *v = a.exp_avg_sq, *average = a.average;
  const float* grad = a.grad;
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const float g = grad[i] * a.grad_scale;
    m[i] += a.exp_avg_rate * (g - m[i]);
    v[i] = a.beta2 * v[i] + a.exp_avg_sq_rate * g * g;
    param[i] = param[i] * decay - step * m[i] / (std::sqrt(v[i]) / a.bias_correction2_sqrt + a.eps);
    if constexpr (kAverages) average[i] += a.average_rate * (param[i] - average[i]);
  }
}

void AdamW(const AdamWArgs& a, int64_t begin, int64_t end) {
  a.average ? AdamWElements<true>(a, begin, end) : AdamWElements<false>(a, begin, end);
}

void BlockSquares(const float* x, double* sums, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    double lanes[8] = {};
    for (int j = 0; j < 64; j += 8) {
#pragma omp simd
      for (int l = 0; l < 8; ++l) {
        const double value = x[i * 64 + j + l];
        lanes[l] += value * value;
      }
    }
    sums[i] = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  }
}

template <class T>
void Round(const float* x, T* y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) Store(x[i], y[i]);
}

template <class T>
void Add(const T* x, float* y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] += Load(x[i]);
}

template <class T>
constexpr Typed<T> kTyped = {
    .attention_forward = Attention<false, T>,
    .attention_backward = Attention<true, T>,
    .norm_forward = NormForward<T>,
    .norm_backward = NormBackward<T>,
    .gelu_forward = GeluForward<T>,
    .gelu_backward = GeluBackward<T>,
    .plane_moments = PlaneMoments<T>,
    .plane_moments_backward = PlaneMomentsBackward<T>,
    .plane_norm_forward = PlaneNormForward<T>,
    .plane_norm_backward = PlaneNormBackward<T>,
    .max_pool = MaxPool<T>,
    .max_pool_backward = MaxPoolBackward<T>,
    .round = Round<T>,
    .add = Add<T>,
};

}  // namespace

#define TRAINYARD_STRING2(x) #x
#define TRAINYARD_STRING(x) TRAINYARD_STRING2(x)

namespace TRAINYARD_KERNELS_NAMESPACE {
extern const Table kTable;
const Table kTable = {
    TRAINYARD_STRING(TRAINYARD_KERNELS_NAMESPACE), kTyped<float>, kTyped<Bf16>, kTyped<Fp16>, AdamW, BlockSquares,
};
}  // namespace TRAINYARD_KERNELS_NAMESPACE

}  // namespace trainyard::kernels
