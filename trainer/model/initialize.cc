#include "trainer/model/initialize.h"

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

void FillInitial(const ParameterSpec& spec, uint64_t seed, std::span<float> values) {
  KeyedRandom random(seed, "init " + spec.name);
  for (float& x : values) x = static_cast<float>(Draw(spec.initial, random));
}

}  // namespace trainyard
