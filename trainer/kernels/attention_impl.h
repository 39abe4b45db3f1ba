// The attention kernels, for kernels_impl.cc alone.
#ifndef TRAINYARD_TRAINER_KERNELS_ATTENTION_IMPL_H_
#define TRAINYARD_TRAINER_KERNELS_ATTENTION_IMPL_H_

#include <vector>

#include "trainer/kernels/scalar_math.h"

namespace trainyard::kernels {
// Internal linkage, as in kernels_impl.cc: each instruction set has a copy of its own.
namespace {
//
// Heads are copied into aligned fp32 scratch, their width padded with zeros to P, a multiple of 16.
// Query rows go in groups of kGroup, so that every key and value that is loaded serves all of them.

constexpr int64_t kLanes = 16;
#ifdef __AVX512F__
constexpr int64_t kGroup = 8;  // 16 sums of products at once, half of the registers
#else
constexpr int64_t kGroup = 4;
#endif
constexpr uint32_t kSelfColumn = 0xFFFFFFFFu;  // of dropout: a query's weight for itself
typedef float Lanes __attribute__((vector_size(64)));

inline Lanes LoadLanes(const float* x) { return *reinterpret_cast<const Lanes*>(x); }
inline void StoreLanes(float* x, Lanes value) { *reinterpret_cast<Lanes*>(x) = value; }

constexpr int64_t RoundUp(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// Scratch of floats at a multiple of 64 bytes; keeps its memory from use to use.
class Scratch {
 public:
  // What an earlier use left there, or zero.
  float* Get(int64_t count) {
    const size_t bytes = static_cast<size_t>(count) * sizeof(float) + 64;
    if (bytes_.size() < bytes) bytes_.resize(bytes);
    const auto address = reinterpret_cast<uintptr_t>(bytes_.data());
    return reinterpret_cast<float*>((address + 63) / 64 * 64);
  }

 private:
  std::vector<char> bytes_;
};

struct HeadScratch {
  Scratch k, v, kt, vt, dk, dv, q, dout, dq, scores, gradients, weights;
};

template <class T>
struct Head {
  const AttentionShape& s;
  const AttentionArgs<T>& a;
  int64_t bh, b, h, R, rows, P, pitch;
  float scale;
  float *k, *v, *kt, *vt = nullptr;  // (R, P), (P, pitch)

  Head(const AttentionShape& shape, const AttentionArgs<T>& args, int64_t index, HeadScratch& scratch, bool backward)
      : s(shape),
        a(args),
        bh(index),
        b(index / shape.H),
        h(index % shape.H),
        R(shape.C + shape.Q),
        rows(shape.queries_only ? shape.Q : R),
        P(RoundUp(shape.E, kLanes)),
        pitch(RoundUp(shape.C + 1, kLanes)),
        scale(1.0f / std::sqrt(static_cast<float>(shape.E))) {
    k = scratch.k.Get(R * P);
    v = scratch.v.Get(R * P);
    kt = scratch.kt.Get(P * pitch);
    for (int64_t r = 0; r < R; ++r) {
      const int64_t offset = (b * R + r) * s.kv_stride + h * s.E;
      LoadRow(a.k + offset, s.E, k + r * P);
      LoadRow(a.v + offset, s.E, v + r * P);
    }
    Transpose(k, kt);
    if (backward) Transpose(v, vt = scratch.vt.Get(P * pitch));
  }

  // A row of the head's width, with zeros up to P.
  void LoadRow(const T* from, int64_t width, float* to) const {
    for (int64_t e = 0; e < width; ++e) to[e] = Load(from[e]);
    for (int64_t e = width; e < P; ++e) to[e] = 0;
  }

  // The context's rows as columns, with zeros behind them: a row of scores ends in whole lanes.
  void Transpose(const float* from, float* to) const {
    for (int64_t c = 0; c < pitch; c += kLanes) {
      const int64_t count = std::clamp<int64_t>(s.C - c, 0, kLanes);
      for (int64_t e = 0; e < P; ++e) {
        float* column = to + e * pitch + c;
        for (int64_t i = 0; i < count; ++i) column[i] = from[(c + i) * P + e];
        for (int64_t i = count; i < kLanes; ++i) column[i] = 0;
      }
    }
  }

  // What one row of queries sees: n context rows, and itself when it is a query row.
  struct View {
    int64_t row, n;
    bool self;
  };
  View ViewOf(int64_t out_row) const {
    const int64_t row = out_row + (s.queries_only ? s.C : 0);
    if (row < s.C) return {row, row + 1, false};
    return {row, a.visible[b * s.Q + row - s.C], true};
  }
  // Rows of the group that starts at r; the rest of it has no rows.
  int64_t GroupSize(int64_t r) const { return std::min(kGroup, rows - r); }
  int64_t LongestView(int64_t r) const {
    int64_t n = 0;
    for (int64_t g = 0; g < GroupSize(r); ++g) n = std::max(n, ViewOf(r + g).n);
    return n;
  }
  // Loads the group's rows of q (or of a gradient with out's layout) times `factor`.
  void LoadQueries(int64_t r, float factor, float* q) const {
    for (int64_t g = 0; g < kGroup; ++g) {
      for (int64_t e = 0; e < P; ++e) q[g * P + e] = 0;
      if (g >= GroupSize(r)) continue;
      const T* row = a.q + (b * rows + r + g) * s.q_stride + h * s.E;
      for (int64_t e = 0; e < s.E; ++e) q[g * P + e] = Load(row[e]) * factor;
    }
  }
  void LoadOutputGradients(int64_t r, float* dout) const {
    for (int64_t g = 0; g < kGroup; ++g) {
      for (int64_t e = 0; e < P; ++e) dout[g * P + e] = 0;
      if (g >= GroupSize(r)) continue;
      const T* row = a.dout + (b * rows + r + g) * s.H * s.E + h * s.E;
      for (int64_t e = 0; e < s.E; ++e) dout[g * P + e] = Load(row[e]);
    }
  }
  template <bool kDrops>
  DropoutRow<kDrops> DropoutOf(const View& view) const {
    return DropoutRow<kDrops>(s.dropout, static_cast<uint64_t>(bh * R + view.row));
  }
};

inline float DotRow(const float* x, const float* y, int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

// out[g][j] = x[g] . columns[:, j] for j < n rounded up to lanes.  x: (kGroup, P), columns: (P, pitch)
inline void DotGroup(const float* x, const float* columns, int64_t P, int64_t pitch, int64_t n, float* out) {
  for (int64_t j = 0; j < n; j += kLanes) {
    Lanes sum[kGroup] = {};
    for (int64_t e = 0; e < P; ++e) {
      const Lanes column = LoadLanes(columns + e * pitch + j);
      for (int64_t g = 0; g < kGroup; ++g) sum[g] += x[g * P + e] * column;
    }
    for (int64_t g = 0; g < kGroup; ++g) StoreLanes(out + g * pitch + j, sum[g]);
  }
}

// y[g] += sum over j < n of w[g][j] * rows[j].  w: (kGroup, pitch), rows: (n, P), y: (kGroup, P)
inline void WeightedSumGroup(const float* w, int64_t pitch, const float* rows, int64_t P, int64_t n, float* y) {
  for (int64_t e = 0; e < P; e += kLanes) {
    Lanes even[kGroup] = {}, odd[kGroup] = {};  // Two chains hide the latency of the sums.
    int64_t j = 0;
    for (; j + 2 <= n; j += 2) {
      const Lanes first = LoadLanes(rows + j * P + e), second = LoadLanes(rows + (j + 1) * P + e);
      for (int64_t g = 0; g < kGroup; ++g) {
        even[g] += w[g * pitch + j] * first;
        odd[g] += w[g * pitch + j + 1] * second;
      }
    }
    if (j < n) {
      const Lanes last = LoadLanes(rows + j * P + e);
      for (int64_t g = 0; g < kGroup; ++g) even[g] += w[g * pitch + j] * last;
    }
    for (int64_t g = 0; g < kGroup; ++g) StoreLanes(y + g * P + e, LoadLanes(y + g * P + e) + even[g] + odd[g]);
  }
}

// rows[j] += sum over g of w[g][j] * x[g] for j < n.  w: (kGroup, pitch), x: (kGroup, P), rows: (n, P)
inline void OuterAddGroup(const float* w, int64_t pitch, const float* x, int64_t P, int64_t n, float* rows) {
  for (int64_t e = 0; e < P; e += kLanes) {
    Lanes part[kGroup];
    for (int64_t g = 0; g < kGroup; ++g) part[g] = LoadLanes(x + g * P + e);
    for (int64_t j = 0; j < n; ++j) {
      Lanes sum = LoadLanes(rows + j * P + e);
      for (int64_t g = 0; g < kGroup; ++g) sum += w[g * pitch + j] * part[g];
      StoreLanes(rows + j * P + e, sum);
    }
  }
}

// y += w * x over P.
inline void AddScaled(float w, const float* x, int64_t P, float* y) {
  for (int64_t e = 0; e < P; e += kLanes) StoreLanes(y + e, LoadLanes(y + e) + w * LoadLanes(x + e));
}

// Rows are worked on in whole lanes: what lies behind the n visible scores is set so low that its
// exponential does not count, and the caller zeroes it afterwards.
inline int64_t PadScores(float* w, int64_t n) {
  const int64_t padded = RoundUp(n, kLanes);
  for (int64_t j = n; j < padded; ++j) w[j] = -1e30f;
  return padded;
}

// Softmax of w[0, visible) in place, with dropout; `self` is the score of the row itself, or
// -infinity. Returns the log of the sum of exponentials; *self becomes its weight.
template <bool kDrops>
inline float SoftmaxRow(float* w, int64_t visible, float* self, const DropoutRow<kDrops>& drop) {
  const int64_t n = PadScores(w, visible);
  float top = *self;
#pragma omp simd reduction(max : top)
  for (int64_t j = 0; j < n; ++j) top = top < w[j] ? w[j] : top;
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < n; ++j) {
    w[j] = Exp(w[j] - top);
    sum += w[j];
  }
  const bool has_self = *self > -INFINITY;
  *self = has_self ? Exp(*self - top) : 0;
  sum += *self;
  const float inverse = 1.0f / sum;
  if (kDrops) {
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) w[j] *= inverse * drop.Factor(static_cast<uint32_t>(j));
  } else {
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) w[j] *= inverse;
  }
  *self *= inverse * (kDrops ? drop.Factor(kSelfColumn) : 1.0f);
  return top + std::log(sum);
}

template <bool kDrops, class T>
void AttentionForwardHead(const Head<T>& head, HeadScratch& scratch) {
  const int64_t P = head.P, pitch = head.pitch;
  float *q = scratch.q.Get(kGroup * P), *w = scratch.scores.Get(kGroup * pitch), *out = scratch.dout.Get(kGroup * P);
  for (int64_t r = 0; r < head.rows; r += kGroup) {
    const int64_t size = head.GroupSize(r), longest = head.LongestView(r), padded = RoundUp(longest, kLanes);
    head.LoadQueries(r, head.scale, q);
    DotGroup(q, head.kt, P, pitch, longest, w);
    std::fill_n(out, kGroup * P, 0.f);
    for (int64_t g = 0; g < kGroup; ++g) {
      float* row_w = w + g * pitch;
      if (g >= size) {
        std::fill_n(row_w, padded, 0.f);
        continue;
      }
      const auto view = head.ViewOf(r + g);
      float self = view.self ? DotRow(q + g * P, head.k + view.row * P, P) : -INFINITY;
      head.a.lse[head.bh * head.rows + r + g] = SoftmaxRow(row_w, view.n, &self, head.template DropoutOf<kDrops>(view));
      std::fill(row_w + view.n, row_w + padded, 0.f);
      if (view.self) AddScaled(self, head.v + view.row * P, P, out + g * P);
    }
    WeightedSumGroup(w, pitch, head.v, P, longest, out);
    for (int64_t g = 0; g < size; ++g) {
      T* to = head.a.out + (head.b * head.rows + r + g) * head.s.H * head.s.E + head.h * head.s.E;
      for (int64_t e = 0; e < head.s.E; ++e) Store(out[g * P + e], to[e]);
    }
  }
}

// From scores (w) and the gradient of the dropped weights (dw) to the gradient of the scores (w) and
// the dropped weights (dw), for one row.
template <bool kDrops>
inline void SoftmaxBackwardRow(float* w, float* dw, int64_t visible, float lse, float* self, float* dself,
                               const DropoutRow<kDrops>& drop) {
  const int64_t n = PadScores(w, visible);
  float delta = 0;
#pragma omp simd reduction(+ : delta)
  for (int64_t j = 0; j < n; ++j) {
    w[j] = Exp(w[j] - lse);
    delta += w[j] * dw[j] * drop.Factor(static_cast<uint32_t>(j));
  }
  const float self_factor = drop.Factor(kSelfColumn);
  *self = *self > -INFINITY ? Exp(*self - lse) : 0;
  delta += *self * *dself * self_factor;
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) {
    const float factor = drop.Factor(static_cast<uint32_t>(j)), weight = w[j];
    w[j] = weight * (dw[j] * factor - delta);
    dw[j] = weight * factor;
  }
  const float weight = *self;
  *self = weight * (*dself * self_factor - delta);
  *dself = weight * self_factor;
}

template <bool kDrops, class T>
void AttentionBackwardHead(const Head<T>& head, HeadScratch& scratch) {
  const int64_t P = head.P, pitch = head.pitch, E = head.s.E;
  float *q = scratch.q.Get(kGroup * P), *dout = scratch.dout.Get(kGroup * P), *dq = scratch.dq.Get(kGroup * P);
  float *w = scratch.scores.Get(kGroup * pitch), *dw = scratch.gradients.Get(kGroup * pitch);
  float *dk = scratch.dk.Get(head.R * P), *dv = scratch.dv.Get(head.R * P);
  std::fill_n(dk, head.R * P, 0.f);
  std::fill_n(dv, head.R * P, 0.f);
  for (int64_t r = 0; r < head.rows; r += kGroup) {
    const int64_t size = head.GroupSize(r), longest = head.LongestView(r), padded = RoundUp(longest, kLanes);
    // q carries the scale, so the scores' gradient times q is already the keys' gradient.
    head.LoadQueries(r, head.scale, q);
    head.LoadOutputGradients(r, dout);
    DotGroup(q, head.kt, P, pitch, longest, w);
    DotGroup(dout, head.vt, P, pitch, longest, dw);
    std::fill_n(dq, kGroup * P, 0.f);
    for (int64_t g = 0; g < kGroup; ++g) {
      float *row_w = w + g * pitch, *row_dw = dw + g * pitch;
      const auto view = g < size ? head.ViewOf(r + g) : typename Head<T>::View{0, 0, false};
      if (g < size) {
        const float *k_self = head.k + view.row * P, *v_self = head.v + view.row * P;
        float self = view.self ? DotRow(q + g * P, k_self, P) : -INFINITY;
        float dself = view.self ? DotRow(dout + g * P, v_self, P) : 0;
        SoftmaxBackwardRow(row_w, row_dw, view.n, head.a.lse[head.bh * head.rows + r + g], &self, &dself,
                           head.template DropoutOf<kDrops>(view));
        if (view.self) {
          AddScaled(self, k_self, P, dq + g * P);
          AddScaled(self, q + g * P, P, dk + view.row * P);
          AddScaled(dself, dout + g * P, P, dv + view.row * P);
        }
      }
      std::fill(row_w + view.n, row_w + padded, 0.f);
      std::fill(row_dw + view.n, row_dw + padded, 0.f);
    }
    WeightedSumGroup(w, pitch, head.k, P, longest, dq);
    OuterAddGroup(w, pitch, q, P, longest, dk);
    OuterAddGroup(dw, pitch, dout, P, longest, dv);
    for (int64_t g = 0; g < size; ++g) {
      T* to = head.a.dq + (head.b * head.rows + r + g) * head.s.q_stride + head.h * E;
      for (int64_t e = 0; e < E; ++e) Store(dq[g * P + e] * head.scale, to[e]);
    }
  }
  for (int64_t r = 0; r < head.R; ++r) {
    const int64_t offset = (head.b * head.R + r) * head.s.kv_stride + head.h * E;
    for (int64_t e = 0; e < E; ++e) {
      Store(dk[r * P + e], head.a.dk[offset + e]);
      Store(dv[r * P + e], head.a.dv[offset + e]);
    }
  }
}

template <bool kBackward, class T>
void Attention(const AttentionShape& s, const AttentionArgs<T>& a, int64_t begin, int64_t end) {
  thread_local HeadScratch scratch;
  for (int64_t bh = begin; bh < end; ++bh) {
    const Head<T> head(s, a, bh, scratch, kBackward);
    WithDropout(s.dropout, [&]<bool kDrops>() {
      kBackward ? AttentionBackwardHead<kDrops>(head, scratch) : AttentionForwardHead<kDrops>(head, scratch);
    });
  }
}

}  // namespace
}  // namespace trainyard::kernels

#endif  // TRAINYARD_TRAINER_KERNELS_ATTENTION_IMPL_H_
