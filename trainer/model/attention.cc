#include "trainer/model/attention.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>

#include "trainer/base/random.h"
#include "trainer/kernels/kernels.h"
#include "trainer/model/device_ops.h"
#include "trainer/model/parallel_for.h"

namespace trainyard {
namespace {

using kernels::Kernels;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

constexpr int64_t kQueriesPerTile = 256;

// A head of a sample as a matrix in float32.  x: (B, N, D) -> (N, D / H)
at::Tensor Head(const at::Tensor& x, int64_t heads, int64_t index) {
  const int64_t width = x.size(2) / heads;
  return x.select(0, index / heads).narrow(1, index % heads * width, width).to(at::kFloat);
}

void PutHead(const at::Tensor& to, int64_t heads, int64_t index, const at::Tensor& values) {
  const int64_t width = to.size(2) / heads;
  to.select(0, index / heads).narrow(1, index % heads * width, width).copy_(values);
}

// What is left of a tile's weights: 1 / (1 - p) or 0. A pure function of the key and the tile's place.
at::Tensor Kept(const at::Tensor& weights, const DropoutDraw& dropout, int64_t head, int64_t tile) {
  const uint64_t key = HashKey(dropout.key, static_cast<uint64_t>(head), static_cast<uint64_t>(tile));
  const at::Generator generator = at::detail::createCPUGenerator(key);
  return at::empty_like(weights).bernoulli_(1 - dropout.p, generator).div_(1 - dropout.p);
}

// The queries [begin, begin + size) of a head.
struct Tile {
  int64_t begin, size, index;
};

template <class Run>
void OverTiles(int64_t queries, Run run) {
  for (int64_t begin = 0; begin < queries; begin += kQueriesPerTile)
    run(Tile{begin, std::min(kQueriesPerTile, queries - begin), begin / kQueriesPerTile});
}

struct AttentionFunction : Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            int64_t heads, int64_t key, double p) {
    const float scale = Scale(q, heads);
    const DropoutDraw dropout{static_cast<uint64_t>(key), p};
    at::Tensor out = at::empty_like(q);
    at::Tensor lse = at::empty({q.size(0) * heads, q.size(1)}, q.options().dtype(at::kFloat));
    ParallelBlocks(q.size(0) * heads, 1, [&](int64_t head, int64_t) {
      const at::Tensor qs = Head(q, heads, head), ks = Head(k, heads, head).t(), vs = Head(v, heads, head);
      at::Tensor result = at::empty({qs.size(0), vs.size(1)}, qs.options());
      OverTiles(qs.size(0), [&](const Tile& tile) {
        at::Tensor weights = at::mm(qs.narrow(0, tile.begin, tile.size), ks);
        Kernels().softmax(weights.data_ptr<float>(), LseOf(lse, head, tile), tile.size, ks.size(1), scale);
        if (p > 0) weights.mul_(Kept(weights, dropout, head, tile.index));
        at::Tensor part = result.narrow(0, tile.begin, tile.size);
        at::mm_out(part, weights, vs);
      });
      PutHead(out, heads, head, result);
    });
    ctx->save_for_backward({q, k, v, out, lse});
    ctx->saved_data["heads"] = heads;
    ctx->saved_data["key"] = key;
    ctx->saved_data["p"] = p;
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &out = saved[3], &lse = saved[4], &dout = grads[0];
    const int64_t heads = ctx->saved_data["heads"].toInt();
    const float scale = Scale(q, heads);
    const DropoutDraw dropout{static_cast<uint64_t>(ctx->saved_data["key"].toInt()), ctx->saved_data["p"].toDouble()};
    at::Tensor dq = at::empty_like(q), dk = at::empty_like(k), dv = at::empty_like(v);
    ParallelBlocks(q.size(0) * heads, 1, [&](int64_t head, int64_t) {
      const at::Tensor qs = Head(q, heads, head), ks = Head(k, heads, head), vs = Head(v, heads, head);
      const at::Tensor os = Head(out, heads, head), dos = Head(dout, heads, head);
      at::Tensor dqs = at::empty_like(qs), dks = at::zeros(ks.sizes(), ks.options()),
                 dvs = at::zeros(vs.sizes(), vs.options());
      OverTiles(qs.size(0), [&](const Tile& tile) {
        const at::Tensor query = qs.narrow(0, tile.begin, tile.size), dy = dos.narrow(0, tile.begin, tile.size);
        const at::Tensor weights = at::mm(query, ks.t());
        Kernels().softmax_again(weights.data_ptr<float>(), LseOf(lse, head, tile), tile.size, ks.size(0), scale);
        at::Tensor dweights = at::mm(dy, vs.t());
        if (dropout.p > 0) {
          const at::Tensor kept = Kept(weights, dropout, head, tile.index);
          dvs.addmm_((weights * kept).t(), dy);
          dweights.mul_(kept);
        } else {
          dvs.addmm_(weights.t(), dy);
        }
        // The row's sum of weights and their gradients, which dy and the output have as well (Dao et al., arXiv
        // 2205.14135), also with dropout: it is in both.
        const at::Tensor mean = (dy * os.narrow(0, tile.begin, tile.size)).sum(1);
        Kernels().softmax_backward(weights.const_data_ptr<float>(), dweights.data_ptr<float>(),
                                   mean.const_data_ptr<float>(), tile.size, ks.size(0), scale);
        at::Tensor part = dqs.narrow(0, tile.begin, tile.size);
        at::mm_out(part, dweights, ks);
        dks.addmm_(dweights.t(), query);
      });
      PutHead(dq, heads, head, dqs);
      PutHead(dk, heads, head, dks);
      PutHead(dv, heads, head, dvs);
    });
    return {dq, dk, dv, {}, {}, {}};
  }

 private:
  static float Scale(const at::Tensor& q, int64_t heads) {
    return 1 / std::sqrt(static_cast<float>(q.size(2) / heads));
  }
  static float* LseOf(const at::Tensor& lse, int64_t head, const Tile& tile) {
    return lse.data_ptr<float>() + head * lse.size(1) + tile.begin;
  }
};

}  // namespace

at::Tensor Attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t heads,
                     const DropoutDraw& dropout) {
  if (!q.is_cpu()) return device_ops::Attention(q, k, v, heads, dropout);
  return AttentionFunction::apply(q, k, v, heads, static_cast<int64_t>(dropout.key), dropout.p);
}

}  // namespace trainyard
