#include "trainer/parallel/memory_plan.h"

#include "trainer/parallel/flat_layout.h"

namespace trainyard {

int64_t MemoryPlan::total() const {
  int64_t sum = 0;
  for (const Component& component : components) sum += component.bytes;
  return sum;
}

void MemoryPlan::Add(const char* name, int64_t bytes) {
  if (bytes > 0) components.push_back({name, bytes});
}

int64_t ElementBytes(DType dtype, Precision precision) {
  if (dtype == DType::kCompute) return precision == Precision::kBf16 ? 2 : 4;
  return dtype == DType::kBfloat16 ? 2 : 4;
}

namespace {

// What a checkpoint of a stage copies, on one of the ranks that share it.
int64_t InFlight(const ModelDeclaration& declaration, int world, const std::vector<std::string>& trainable) {
  int64_t bytes = FlatLayout(Trained(declaration, trainable), world).total() * 12;
  for (const ParameterSpec& spec : declaration.parameters) {
    if (spec.trainable && !IsTrained(spec, trainable)) bytes += spec.numel() * 4;
  }
  for (const BufferSpec& spec : declaration.buffers) bytes += spec.numel() * 4;
  return (bytes + world - 1) / world;
}

}  // namespace

MemoryPlan PlanDdpEngine(const ModelDeclaration& declaration, Precision precision, int world,
                         const std::vector<std::string>& trainable) {
  const int64_t flat = FlatLayout(Trained(declaration, trainable), world).total();
  int64_t frozen = 0, resting = 0, buffers = 0;
  for (const ParameterSpec& spec : declaration.parameters) {
    const int64_t bytes = ElementBytes(spec.dtype, precision);
    if (!spec.trainable) frozen += spec.numel() * bytes;
    if (!spec.trainable || IsTrained(spec, trainable)) continue;
    resting += bytes == 2 ? spec.numel() * 6 : spec.numel() * 4;
  }
  for (const BufferSpec& spec : declaration.buffers) buffers += spec.numel() * 4;
  MemoryPlan plan;
  plan.Add("master parameters, fp32", flat * 4);
  plan.Add("parameters, bf16", precision == Precision::kBf16 ? flat * 2 : 0);
  plan.Add("gradients, fp32", flat * 4);
  plan.Add("AdamW moments, fp32", flat * 8);
  plan.Add("parameters of other stages", resting);
  plan.Add("frozen parameters", frozen);
  plan.Add("buffers", buffers);
  return plan;
}

MemoryPlan PlanDdpMemory(const ModelDeclaration& declaration, Precision precision, int world,
                         const std::vector<std::string>& trainable) {
  MemoryPlan plan = PlanDdpEngine(declaration, precision, world, trainable);
  plan.Add("checkpoint in flight", InFlight(declaration, world, trainable));
  return plan;
}

MemoryPlan PlanDdpHandOver(const ModelDeclaration& declaration, Precision precision, int world,
                           const std::vector<std::string>& before, const std::vector<std::string>& after) {
  int64_t left = FlatLayout(Trained(declaration, before), world).total() * 4;
  for (const ParameterSpec& spec : declaration.parameters) {
    if (!IsTrained(spec, before) && IsTrained(spec, after)) left += spec.numel() * 4;
  }
  for (const BufferSpec& spec : declaration.buffers) left += spec.numel() * 4;
  MemoryPlan plan = PlanDdpEngine(declaration, precision, world, after);
  plan.Add("what the stage before leaves", left);
  plan.Add("checkpoint in flight", InFlight(declaration, world, before));
  return plan;
}

}  // namespace trainyard
