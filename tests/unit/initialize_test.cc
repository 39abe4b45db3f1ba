#include "trainer/model/initialize.h"

#include <gtest/gtest.h>

#include <vector>

#include "trainer/base/random.h"
#include "trainer/model/initialize_together.h"
#include "trainer/threads/parallel_for.h"

namespace trainyard {
namespace {

ParameterSpec Spec(Initial::Kind kind, double scale) {
  return {.name = "w", .shape = {200, 1001}, .unit = {}, .initial = {kind, scale}};
}

std::vector<float> Whole(const ParameterSpec& spec) {
  std::vector<float> values(static_cast<size_t>(spec.numel()));
  FillInitial(spec, 7, values);
  return values;
}

// The values that runs have begun with since the first release: one sequence of draws, in the elements' order.
TEST(Initialize, TheDrawsAreOneSequence) {
  KeyedRandom uniform(7, "init w"), normal(7, "init w");
  const std::vector<float> uniforms = Whole(Spec(Initial::Kind::kUniform, 0.3)),
                           normals = Whole(Spec(Initial::Kind::kNormal, 0.02));
  for (const float x : uniforms) ASSERT_EQ(x, static_cast<float>(0.3 * (2 * uniform.UniformDouble() - 1)));
  for (const float x : normals) ASSERT_EQ(x, static_cast<float>(0.02 * normal.Normal()));
}

TEST(Initialize, PartsAndThreadsMakeTheSameValues) {
  for (const auto& [kind, scale] :
       {std::pair{Initial::Kind::kConstant, 1.0}, std::pair{Initial::Kind::kUniform, 0.3},
        std::pair{Initial::Kind::kNormal, 0.02}, std::pair{Initial::Kind::kTruncatedNormal, 1.0}}) {
    const ParameterSpec spec = Spec(kind, scale);
    SCOPED_TRACE(static_cast<int>(kind));
    const std::vector<float> whole = Whole(spec);
    std::vector<float> together(whole.size());
    FillInitialTogether(spec, 7, together);
    EXPECT_EQ(together, whole);
    // What threads are given begins at several parts.
    const int64_t part = InitialPart(spec), begin = spec.numel() / 2 / part * part;
    std::vector<float> behind(whole.size() - static_cast<size_t>(begin));
    FillInitial(spec, 7, behind, begin);
    EXPECT_TRUE(std::ranges::equal(behind, std::span(whole).subspan(static_cast<size_t>(begin))));
    EXPECT_EQ(begin > 0, kind != Initial::Kind::kTruncatedNormal) << "each follows from those before it";
  }
}

}  // namespace
}  // namespace trainyard
