#include "trainer/model/initialize.h"

#include <algorithm>

#include "trainer/base/random.h"

namespace trainyard {
namespace {

double Draw(const Initial& initial, KeyedRandom& random) {
  switch (initial.kind) {
    case Initial::Kind::kConstant:
      return initial.scale;
    case Initial::Kind::kUniform:
      return initial.scale * (2 * random.UniformDouble() - 1);
    case Initial::Kind::kNormal:
      return initial.scale * random.Normal();
    case Initial::Kind::kTruncatedNormal:
      break;
  }
  for (;;) {  // torch.nn.init.trunc_normal_ cuts at the absolute values -2 and 2.
    const double x = initial.scale * random.Normal();
    if (x >= -2 && x <= 2) return x;
  }
}

}  // namespace

int64_t InitialPart(const ParameterSpec& spec) {
  constexpr int64_t kPart = 1 << 16;
  return spec.initial.kind == Initial::Kind::kTruncatedNormal ? std::max<int64_t>(spec.numel(), 1) : kPart;
}

void FillInitial(const ParameterSpec& spec, uint64_t seed, std::span<float> values, int64_t begin) {
  KeyedRandom random(seed, "init " + spec.name);
  // A normal value takes a block of draws, a uniform one half of it.
  const auto first = static_cast<uint64_t>(begin);
  random.Seek(spec.initial.kind == Initial::Kind::kUniform ? first / 2 : first);
  for (float& x : values) x = static_cast<float>(Draw(spec.initial, random));
}

}  // namespace trainyard
