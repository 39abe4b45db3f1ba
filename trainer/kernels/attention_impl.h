// The attention kernels, for kernels_impl.cc alone.
//
// Sixteen query rows are worked on at once, one a lane. Sums over keys and over the head's width then stay within their
// lane, and every number of a key or a value is read once, for all sixteen.
#ifndef TRAINYARD_TRAINER_KERNELS_ATTENTION_IMPL_H_
#define TRAINYARD_TRAINER_KERNELS_ATTENTION_IMPL_H_

#include <vector>

#include "trainer/kernels/lanes.h"
#include "trainer/kernels/scalar_math.h"

namespace trainyard::kernels {
// Internal linkage, as in kernels_impl.cc: each instruction set has a copy of its own.
namespace {

// How many of a head's columns, or of the block's rows, are kept in registers at once: half of them.
#ifdef __AVX512F__
constexpr int64_t kDepth = 16;
#else
constexpr int64_t kDepth = 4;
#endif
constexpr float kUnseen = -1e30f;              // a score whose exponential is zero
constexpr uint32_t kSelfColumn = 0xFFFFFFFFu;  // of dropout: a query's weight for itself

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
  Lanes* GetLanes(int64_t count) { return reinterpret_cast<Lanes*>(Get(count * kLanes)); }

 private:
  std::vector<char> bytes_;
};

struct HeadScratch {
  Scratch k, v, dk, dv, scores, gradients;
  // Of one block of queries, as rows (16, P) and as columns (P) of lanes.
  Scratch q, qt, dout, doutt, row, column, self_kt, self_vt;
};

// ---- What a block is made of -------------------------------------------------------------------

// A row of the head's width, with zeros up to P.
template <class T>
inline void LoadRow(const T* from, int64_t width, int64_t P, float factor, float* to) {
  int64_t e = 0;
  for (; e + kLanes <= width; e += kLanes) {
#pragma omp simd
    for (int64_t i = 0; i < kLanes; ++i) to[e + i] = Load(from[e + i]) * factor;
  }
  for (; e < width; ++e) to[e] = Load(from[e]) * factor;
  for (; e < P; ++e) to[e] = 0;
}

template <class T>
inline void StoreRow(const float* from, int64_t width, T* to) {
  int64_t e = 0;
  for (; e + kLanes <= width; e += kLanes) {
#pragma omp simd
    for (int64_t i = 0; i < kLanes; ++i) Store(from[e + i], to[e + i]);
  }
  for (; e < width; ++e) Store(from[e], to[e]);
}

// rows: (16, P) -> columns: (P) of lanes.
inline void ToColumns(const float* rows, int64_t P, Lanes* columns) {
  for (int64_t e = 0; e < P; e += kLanes) {
    Lanes tile[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) tile[i] = LoadLanes(rows + i * P + e);
    TransposeTile(tile);
    for (int64_t i = 0; i < kLanes; ++i) columns[e + i] = tile[i];
  }
}

inline void ToRows(const Lanes* columns, int64_t P, float* rows) {
  for (int64_t e = 0; e < P; e += kLanes) {
    Lanes tile[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) tile[i] = columns[e + i];
    TransposeTile(tile);
    for (int64_t i = 0; i < kLanes; ++i) StoreLanes(rows + i * P + e, tile[i]);
  }
}

inline Lanes Dot(const Lanes* x, const Lanes* y, int64_t P) {
  Lanes even{}, odd{};
  for (int64_t e = 0; e < P; e += 2) {
    even += x[e] * y[e];
    odd += x[e + 1] * y[e + 1];
  }
  return even + odd;
}

// The largest of x[0, n) and `least`. Four at a time: each maximum would wait for the one before.
inline Lanes MaxOf(const Lanes* x, int64_t n, Lanes least) {
  Lanes top[4] = {least, least, least, least};
  int64_t j = 0;
  for (; j + 4 <= n; j += 4) {
    for (int64_t i = 0; i < 4; ++i) top[i] = Max(top[i], x[j + i]);
  }
  for (; j < n; ++j) top[0] = Max(top[0], x[j]);
  return Max(Max(top[0], top[1]), Max(top[2], top[3]));
}

// out[j] = sum over e of columns[e] * rows[j][e] for j < n.  columns: (P), rows: (n, P)
inline void DotRows(const Lanes* columns, const float* rows, int64_t P, int64_t n, Lanes* out) {
  for (int64_t e = 0; e < P; e += kDepth) {
    Lanes part[kDepth];
    for (int64_t d = 0; d < kDepth; ++d) part[d] = columns[e + d];
    for (int64_t j = 0; j < n; ++j) {
      const float* row = rows + j * P + e;
      Lanes even = e > 0 ? out[j] : Lanes{}, odd{};
      for (int64_t d = 0; d < kDepth; d += 2) {
        even += row[d] * part[d];
        odd += row[d + 1] * part[d + 1];
      }
      out[j] = even + odd;
    }
  }
}

// columns[e] += sum over j < n of w[j] * rows[j][e].
inline void AddWeightedRows(const Lanes* w, const float* rows, int64_t P, int64_t n, Lanes* columns) {
  for (int64_t e = 0; e < P; e += kDepth) {
    Lanes sum[kDepth];
    for (int64_t d = 0; d < kDepth; ++d) sum[d] = columns[e + d];
    for (int64_t j = 0; j < n; ++j) {
      const float* row = rows + j * P + e;
      for (int64_t d = 0; d < kDepth; ++d) sum[d] += row[d] * w[j];
    }
    for (int64_t d = 0; d < kDepth; ++d) columns[e + d] = sum[d];
  }
}

// rows[j] += sum over the lanes of w[j][lane] * x[lane] for j < n.  x: (16, P), rows: (n, P)
inline void AddOuter(const Lanes* w, const float* x, int64_t P, int64_t n, float* rows) {
  for (int64_t e = 0; e < P; e += kLanes) {
    for (int64_t lane = 0; lane < kLanes; lane += kDepth) {
      Lanes part[kDepth];
      for (int64_t d = 0; d < kDepth; ++d) part[d] = LoadLanes(x + (lane + d) * P + e);
      for (int64_t j = 0; j < n; ++j) {
        const float* weights = reinterpret_cast<const float*>(w + j) + lane;
        Lanes even = LoadLanes(rows + j * P + e), odd{};
        for (int64_t d = 0; d < kDepth; d += 2) {
          even += weights[d] * part[d];
          odd += weights[d + 1] * part[d + 1];
        }
        StoreLanes(rows + j * P + e, even + odd);
      }
    }
  }
}

// What the weights of a block's rows for one column are multiplied by: DropoutRow of sixteen rows.
template <bool kDrops>
struct DropoutLanes {
  WordLanes seed{};
  uint32_t threshold = 0;
  float keep_scale = 0;
  DropoutLanes(const Dropout& dropout, uint64_t first_row) {
    for (uint64_t lane = 0; lane < kLanes; ++lane) {
      const DropoutRow<kDrops> row(dropout, first_row + lane);
      seed[lane] = row.seed;
      threshold = row.threshold;
      keep_scale = row.keep_scale;
    }
  }
  Lanes Factor(uint32_t column) const {
    const Lanes zero{}, kept = zero + keep_scale;
    if (!kDrops) return kept;
    return MixColumn(seed, column) >= threshold ? kept : zero;
  }
};

// ---- A head ------------------------------------------------------------------------------------

// Up to sixteen rows of queries that see alike: context rows, or query rows, which see themselves as well.
struct Block {
  int64_t first, size;  // rows of the output
  int64_t row;          // the first one's among all R, or, where everything is seen, among the queries
  bool self;
  IntLanes visible;  // context rows that each sees; of lanes without a row, as many as the last one
  int64_t shortest, longest;
};

template <class T>
struct Head {
  const AttentionShape& s;
  const AttentionArgs<T>& a;
  HeadScratch& scratch;
  int64_t bh, b, h, R, rows, P;
  float scale;
  float *k, *v;  // (R + 16, P)

  Head(const AttentionShape& shape, const AttentionArgs<T>& args, int64_t index, HeadScratch& memory)
      : s(shape),
        a(args),
        scratch(memory),
        bh(index),
        b(index / shape.H),
        h(index % shape.H),
        R(shape.sight == Sight::kEverything ? shape.C : shape.C + shape.Q),
        rows(shape.sight == Sight::kPrefix ? R : shape.Q),
        P(RoundUp(shape.E, kLanes)),
        scale(1.0f / std::sqrt(static_cast<float>(shape.E))) {
    k = scratch.k.Get((R + kLanes) * P);
    v = scratch.v.Get((R + kLanes) * P);
    for (int64_t r = 0; r < R; ++r) {
      const int64_t offset = (b * R + r) * s.kv_stride + h * s.E;
      LoadRow(a.k + offset, s.E, P, 1, k + r * P);
      LoadRow(a.v + offset, s.E, P, 1, v + r * P);
    }
    // A last block's lanes without a row.
    std::fill_n(k + R * P, kLanes * P, 0.f);
    std::fill_n(v + R * P, kLanes * P, 0.f);
  }

  template <class Run>
  void OverBlocks(Run run) const {
    const int64_t context_rows = s.sight == Sight::kPrefix ? s.C : 0;
    const bool self = s.sight != Sight::kEverything;
    for (int64_t r = 0; r < context_rows; r += kLanes) run(BlockAt(r, std::min(kLanes, context_rows - r), false));
    for (int64_t r = context_rows; r < rows; r += kLanes) run(BlockAt(r, std::min(kLanes, rows - r), self));
  }

  Block BlockAt(int64_t first, int64_t size, bool self) const {
    Block block{first, size, first + (s.sight == Sight::kPrefixOfQueries ? s.C : 0), self, {}, s.C, 0};
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const int64_t row = block.row + std::min(lane, size - 1);
      const int64_t n = s.sight == Sight::kEverything ? s.C : self ? a.visible[b * s.Q + row - s.C] : row + 1;
      block.visible[lane] = static_cast<int32_t>(n);
      block.shortest = std::min(block.shortest, n);
      block.longest = std::max(block.longest, n);
    }
    return block;
  }

  // The block's rows of something with `stride` between rows, times `factor`; zero in lanes without a row.
  void LoadBlock(const Block& block, const T* from, int64_t stride, float factor, float* to, Lanes* columns) const {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const int64_t width = lane < block.size ? s.E : 0;
      LoadRow(from + (b * rows + block.first + std::min(lane, block.size - 1)) * stride + h * s.E, width, P, factor,
              to + lane * P);
    }
    ToColumns(to, P, columns);
  }
  void StoreBlock(const Block& block, const Lanes* columns, int64_t stride, T* to) const {
    float* natural = scratch.row.Get(kLanes * P);
    ToRows(columns, P, natural);
    for (int64_t lane = 0; lane < block.size; ++lane)
      StoreRow(natural + lane * P, s.E, to + (b * rows + block.first + lane) * stride + h * s.E);
  }
  float* Lse(const Block& block) const { return a.lse + bh * rows + block.first; }

  template <bool kDrops>
  DropoutLanes<kDrops> DropoutOf(const Block& block) const {
    return DropoutLanes<kDrops>(s.dropout, static_cast<uint64_t>(bh * std::max(R, rows) + block.row));
  }
};

// Scores of rows that a lane does not see do not count.
inline void HideUnseen(const Block& block, Lanes* scores) {
  const Lanes unseen = Lanes{} + kUnseen;
  for (int64_t j = block.shortest; j < block.longest; ++j)
    scores[j] = static_cast<int32_t>(j) < block.visible ? scores[j] : unseen;
}

template <bool kDrops, class T>
void AttentionForwardBlock(const Head<T>& head, const Block& block) {
  HeadScratch& scratch = head.scratch;
  const int64_t P = head.P, n = block.longest;
  const auto drop = head.template DropoutOf<kDrops>(block);
  Lanes *qt = scratch.qt.GetLanes(P), *out = scratch.column.GetLanes(P), *w = scratch.scores.GetLanes(head.s.C);
  head.LoadBlock(block, head.a.q, head.s.q_stride, head.scale, scratch.q.Get(kLanes * P), qt);
  DotRows(qt, head.k, P, n, w);
  HideUnseen(block, w);
  Lanes self = Lanes{} + kUnseen, top = self;
  if (block.self) {
    Lanes* self_kt = scratch.self_kt.GetLanes(P);
    ToColumns(head.k + block.row * P, P, self_kt);
    top = self = Dot(qt, self_kt, P);
  }
  top = MaxOf(w, n, top);
  // Where all scores of a row are lost, its sum is nothing, and what comes of it no number.
  self = block.self ? Exp(self - top) : Lanes{};
  Lanes sum = self;
  for (int64_t j = 0; j < n; ++j) {
    const Lanes weight = Exp(w[j] - top);
    sum += weight;
    w[j] = kDrops ? weight * drop.Factor(static_cast<uint32_t>(j)) : weight;
  }
  if (block.self) {
    ToColumns(head.v + block.row * P, P, out);
    if (kDrops) self *= drop.Factor(kSelfColumn);
  }
  for (int64_t e = 0; e < P; ++e) out[e] = block.self ? out[e] * self : Lanes{};
  AddWeightedRows(w, head.v, P, n, out);
  const Lanes inverse = 1.0f / sum;
  for (int64_t e = 0; e < P; ++e) out[e] *= inverse;
  head.StoreBlock(block, out, head.s.H * head.s.E, head.a.out);
  const Lanes lse = top + Log(sum);
  for (int64_t lane = 0; lane < block.size; ++lane) head.Lse(block)[lane] = lse[lane];
}

// From scores (w) and the gradient of the dropped weights (dw) to the gradient of the scores (w) and the dropped
// weights (dw); the same of the rows' scores for themselves.
template <bool kDrops>
inline void SoftmaxBackward(Lanes* w, Lanes* dw, int64_t n, Lanes lse, Lanes* self, Lanes* dself,
                            const DropoutLanes<kDrops>& drop) {
  *self = Exp(*self - lse);
  const Lanes self_factor = drop.Factor(kSelfColumn);
  Lanes delta = *self * (*dself * self_factor);
  for (int64_t j = 0; j < n; ++j) {
    w[j] = Exp(w[j] - lse);
    delta += w[j] * (kDrops ? dw[j] * drop.Factor(static_cast<uint32_t>(j)) : dw[j]);
  }
  for (int64_t j = 0; j < n; ++j) {
    const Lanes weight = w[j];
    if (kDrops) {
      const Lanes factor = drop.Factor(static_cast<uint32_t>(j));
      w[j] = weight * (dw[j] * factor - delta);
      dw[j] = weight * factor;
    } else {
      w[j] = weight * (dw[j] - delta);
      dw[j] = weight;
    }
  }
  const Lanes weight = *self;
  *self = weight * (*dself * self_factor - delta);
  *dself = weight * self_factor;
}

// Adds to dk and dv (R + 16, P) what the block's rows owe to the context, and sets what they owe to themselves.
template <bool kDrops, class T>
void AttentionBackwardBlock(const Head<T>& head, const Block& block, float* dk, float* dv) {
  HeadScratch& scratch = head.scratch;
  const int64_t P = head.P, n = block.longest;
  float *q = scratch.q.Get(kLanes * P), *dout = scratch.dout.Get(kLanes * P);
  Lanes *qt = scratch.qt.GetLanes(P), *doutt = scratch.doutt.GetLanes(P), *dq = scratch.column.GetLanes(P);
  Lanes *w = scratch.scores.GetLanes(head.s.C), *dw = scratch.gradients.GetLanes(head.s.C);
  Lanes *self_kt = scratch.self_kt.GetLanes(P), *self_vt = scratch.self_vt.GetLanes(P);
  // q carries the scale, so the scores' gradient times q is already the keys' gradient.
  head.LoadBlock(block, head.a.q, head.s.q_stride, head.scale, q, qt);
  head.LoadBlock(block, head.a.dout, head.s.H * head.s.E, 1, dout, doutt);
  DotRows(qt, head.k, P, n, w);
  HideUnseen(block, w);
  DotRows(doutt, head.v, P, n, dw);
  Lanes self = Lanes{} + kUnseen, dself{}, lse{};
  for (int64_t lane = 0; lane < block.size; ++lane) lse[lane] = head.Lse(block)[lane];
  if (block.self) {
    ToColumns(head.k + block.row * P, P, self_kt);
    ToColumns(head.v + block.row * P, P, self_vt);
    self = Dot(qt, self_kt, P);
    dself = Dot(doutt, self_vt, P);
  }
  SoftmaxBackward(w, dw, n, lse, &self, &dself, head.template DropoutOf<kDrops>(block));
  for (int64_t e = 0; e < P; ++e) dq[e] = block.self ? self * self_kt[e] : Lanes{};
  AddWeightedRows(w, head.k, P, n, dq);
  for (int64_t e = 0; e < P; ++e) dq[e] *= head.scale;
  head.StoreBlock(block, dq, head.s.q_stride, head.a.dq);
  AddOuter(w, q, P, n, dk);
  AddOuter(dw, dout, P, n, dv);
  if (!block.self) return;
  for (int64_t e = 0; e < P; ++e) {
    self_kt[e] = self * qt[e];
    self_vt[e] = dself * doutt[e];
  }
  ToRows(self_kt, P, dk + block.row * P);
  ToRows(self_vt, P, dv + block.row * P);
}

template <bool kDrops, class T>
void AttentionBackwardHead(const Head<T>& head) {
  const int64_t P = head.P;
  float *dk = head.scratch.dk.Get((head.R + kLanes) * P), *dv = head.scratch.dv.Get((head.R + kLanes) * P);
  std::fill_n(dk, head.s.C * P, 0.f);
  std::fill_n(dv, head.s.C * P, 0.f);
  head.OverBlocks([&](const Block& block) { AttentionBackwardBlock<kDrops>(head, block, dk, dv); });
  for (int64_t r = 0; r < head.R; ++r) {
    const int64_t offset = (head.b * head.R + r) * head.s.kv_stride + head.h * head.s.E;
    StoreRow(dk + r * P, head.s.E, head.a.dk + offset);
    StoreRow(dv + r * P, head.s.E, head.a.dv + offset);
  }
}

template <bool kBackward, class T>
void Attention(const AttentionShape& s, const AttentionArgs<T>& a, int64_t begin, int64_t end) {
  thread_local HeadScratch scratch;
  for (int64_t bh = begin; bh < end; ++bh) {
    const Head<T> head(s, a, bh, scratch);
    WithDropout(s.dropout, [&]<bool kDrops>() {
      if (kBackward) {
        AttentionBackwardHead<kDrops>(head);
      } else {
        head.OverBlocks([&](const Block& block) { AttentionForwardBlock<kDrops>(head, block); });
      }
    });
  }
}

}  // namespace
}  // namespace trainyard::kernels

#endif  // TRAINYARD_TRAINER_KERNELS_ATTENTION_IMPL_H_
