// That the device of the tests is what the suites over it rely on: the host cannot touch its memory.
#include "tests/device/far_device.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include "tests/device/ranks.h"
#include "trainer/model/layers.h"
#include "trainer/parallel/engine.h"

namespace trainyard {
namespace {

float FirstOf(const at::Tensor& x) { return *static_cast<const volatile float*>(x.const_data_ptr()); }

TEST(FarDevice, TheHostMayNotTouchItsMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto device = MakeFarDevice(0);
  const at::Tensor x = device->Upload(at::arange(10, at::kFloat));
  EXPECT_DEATH(FirstOf(x), "");
  EXPECT_EQ((x + x).cpu()[3].item<float>(), 6) << "its operations may";
  EXPECT_DEATH(FirstOf(x), "") << "closed again";
}

TEST(FarDevice, ItIsClosedBehindAStep) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::vector<TestRank> alone = MakeTestRanks(1);
  ModelDeclaration declaration;
  const Scope unit = Scope(declaration).Unit("all");
  const Linear layer(unit / "layer", 3, 2);
  const auto engine = MakeEngine(declaration, {}, 1, *alone[0].device, *alone[0].collectives);
  engine->BeginStep(1);
  const Pass pass = Pass::Training(*engine, 1);
  const at::Tensor x = pass.Upload(at::arange(6, at::kFloat).view({2, 3}));
  engine->Backward(pass.Unit({0}, [&](at::TensorList in) { return layer(pass, in[0]).sum(); }, {x}), true);
  engine->Finish();
  EXPECT_TRUE(engine->Update({.lr = 0.1, .finite = true, .before = {}}).applied);
  const at::Tensor weight = engine->Slices()[0].values;
  EXPECT_DEATH(FirstOf(weight), "");
}

}  // namespace
}  // namespace trainyard
