// What `trainyard plan` says of a model that this process never makes.
#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "trainer/config/load.h"
#include "trainer/task/tasks.h"
#include "trainer/train/plan_command.h"

namespace trainyard {
namespace {

// Counts the tensors that LibTorch's allocator makes on this thread.
struct Meter : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override { tensors += size > 0; }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t tensors = 0;
};

TEST(PlanCommand, Gpt2IsCountedWithoutATensor) {
  const Config config = ParseConfig("{task: {name: language_model}, model: {preset: gpt2_124m}}", "test",
                                    {"data.path=/nowhere", "train.steps=1"}, TaskDeclarations());
  const auto meter = std::make_shared<Meter>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
  testing::internal::CaptureStdout();
  const int code = PrintPlan(config, 2, true);
  const auto plan = nlohmann::json::parse(testing::internal::GetCapturedStdout());
  EXPECT_EQ(code, plan["fits"] ? 0 : 71) << "as this machine has it";
  EXPECT_EQ(meter->tensors, 0);
  EXPECT_EQ(plan["parameters"], 124439808);
  EXPECT_GE(plan["bytes_per_rank"]["AdamW moments, fp32"], 124439808 * 8);
  at::empty({1});
  EXPECT_EQ(meter->tensors, 1) << "what is counted";
}

}  // namespace
}  // namespace trainyard
