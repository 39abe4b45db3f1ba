// What is planned is what is allocated: LibTorch's allocator is asked.
#include "trainer/parallel/memory_plan.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/unit/tensor_meter.h"
#include "trainer/comm/in_process.h"
#include "trainer/device/host_device.h"
#include "trainer/parallel/engine.h"

namespace trainyard {
namespace {

// What an engine makes: without a checkpoint in flight, which is no tensor, and what is there while it trains.
int64_t Tensors(const MemoryPlan& plan) {
  int64_t bytes = 0;
  for (const MemoryPlan::Component& component : plan.components) {
    const bool passes = component.name == "checkpoint in flight" || component.name == "gradients in backward" ||
                        component.name == "collectives";
    if (!passes) bytes += component.bytes;
  }
  return bytes;
}

class MemoryPlanTest : public testing::TestWithParam<Precision> {
 protected:
  MemoryPlanTest() {
    const Scope unit = Scope(declaration_).Unit("all");
    unit.Parameter("base", {70, 10}, {Initial::Kind::kNormal, 1}, {.trainable = false, .dtype = DType::kBfloat16});
    unit.Parameter("body.a", {50, 10}, {Initial::Kind::kNormal, 1});
    unit.Parameter("body.b", {30}, {Initial::Kind::kNormal, 1}, {.trainable = true, .dtype = DType::kFloat32});
    unit.Parameter("head", {20, 10}, {Initial::Kind::kNormal, 1});
    unit.Buffer("mean", {9}, 3, BufferPolicy::kMean);
  }
  std::unique_ptr<Engine> Make(const std::vector<std::string>& trainable, ModelValues from = {}) {
    return MakeEngine(
        declaration_,
        {.precision = GetParam(), .bucket_bytes = 256, .micro_batch = 1, .optim = {}, .trainable = trainable}, 7,
        Host(), *communicators_[0], std::move(from));
  }
  std::vector<std::vector<float>> ValuesOf(Engine& engine) {
    std::vector<std::vector<float>> all;
    const auto keep = [&](std::span<const float> values) {
      all.back().insert(all.back().end(), values.begin(), values.end());
    };
    for (int32_t i = 0; i < 4; ++i) {
      all.emplace_back();
      engine.Read(ParameterId{i}, keep);
    }
    all.emplace_back();
    engine.Read(BufferId{0}, keep);
    return all;
  }

  ModelDeclaration declaration_;
  std::vector<std::unique_ptr<Communicator>> communicators_ = MakeInProcessWorld(1);
};

const std::vector<std::string> kAll, kBody = {"body.*"}, kHead = {"head"};

TEST_P(MemoryPlanTest, AnEngineTakesWhatIsPlanned) {
  for (const auto& trainable : {kAll, kBody, kHead}) {
    const auto meter = std::make_shared<TensorMeter>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
    const auto engine = Make(trainable);
    EXPECT_EQ(meter->now, Tensors(PlanMemory(declaration_, {.precision = GetParam()}, trainable)));
    ValuesOf(*engine);
    EXPECT_EQ(meter->now, Tensors(PlanMemory(declaration_, {.precision = GetParam()}, trainable)))
        << "reading leaves nothing";
  }
}

TEST_P(MemoryPlanTest, AShardedEngineTakesWhatIsPlanned) {
  const auto ranks = MakeInProcessWorld(3);
  for (const ZeroStage stage : {ZeroStage::kZero1, ZeroStage::kZero2, ZeroStage::kZero3}) {
    for (const Reduce reduce : {Reduce::kLast, Reduce::kEvery}) {
      if (reduce == Reduce::kEvery && stage == ZeroStage::kZero1) continue;
      for (const int64_t bucket_bytes : {256, 1 << 20}) {
        ParallelShape shape{stage, GetParam(), 3, reduce, bucket_bytes};
        OptimConfig optim;
        shape.averages = shape.offload = shape.bf16_reduce = bucket_bytes == 256;
        if (shape.averages) optim.ema_decay = 0.5;
        const auto meter = std::make_shared<TensorMeter>();
        const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
        const auto engine = MakeEngine(declaration_,
                                       {.stage = stage,
                                        .precision = GetParam(),
                                        .reduce = reduce,
                                        .bf16_reduce = shape.bf16_reduce,
                                        .bucket_bytes = bucket_bytes,
                                        .offload = shape.offload,
                                        .optim = optim},
                                       7, Host(), *ranks[1]);
        EXPECT_EQ(meter->now, Tensors(PlanMemory(declaration_, shape)));
      }
    }
  }
}

TEST_P(MemoryPlanTest, AHandOverTakesNoMoreThanPlannedAndKeepsEveryValue) {
  for (const auto& [before, after] : {std::pair(kBody, kHead), std::pair(kHead, kAll), std::pair(kAll, kHead)}) {
    const auto meter = std::make_shared<TensorMeter>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
    std::unique_ptr<Engine> engine = Make(before);
    for (const StateSlice& slice : engine->Slices()) slice.values.fill_(0.125f);
    engine->Publish();
    const std::vector<std::vector<float>> values = ValuesOf(*engine);
    ModelValues left = engine->Release();
    engine.reset();
    meter->most = meter->now;
    engine = Make(after, std::move(left));
    EXPECT_LE(meter->most, Tensors(PlanHandOver(declaration_, {.precision = GetParam()}, before, after)));
    EXPECT_EQ(meter->now, Tensors(PlanMemory(declaration_, {.precision = GetParam()}, after)))
        << "nothing of the first is kept";
    EXPECT_EQ(ValuesOf(*engine), values);
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, MemoryPlanTest, testing::Values(Precision::kFp32, Precision::kBf16));

TEST(PlanMemory, BackwardHasTheLargestGradientTwiceAndAUnitsOnce) {
  ModelDeclaration declaration;
  const Scope unit = Scope(declaration).Unit("all");
  unit.Parameter("a", {100, 10}, {Initial::Kind::kNormal, 1});
  unit.Parameter("b", {50}, {Initial::Kind::kNormal, 1});
  int64_t bytes = 0;
  for (const MemoryPlan::Component& component : PlanMemory(declaration, {}).components) {
    if (component.name == "gradients in backward") bytes = component.bytes;
  }
  EXPECT_EQ(bytes, 2 * 4000 + 4200);
}

}  // namespace
}  // namespace trainyard
