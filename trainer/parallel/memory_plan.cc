#include "trainer/parallel/memory_plan.h"

#include "trainer/parallel/flat_layout.h"

namespace trainyard {

int64_t MemoryPlan::total() const {
  int64_t sum = 0;
  for (const Component& component : components) sum += component.bytes;
  return sum;
}

int64_t ElementBytes(DType dtype, Precision precision) {
  if (dtype == DType::kCompute) return precision == Precision::kBf16 ? 2 : 4;
  return dtype == DType::kBfloat16 ? 2 : 4;
}

MemoryPlan PlanDdpMemory(const ModelDeclaration& declaration, Precision precision, int world,
                         const std::vector<std::string>& trainable) {
  const int64_t flat = FlatLayout(Trained(declaration, trainable), world).total();
  int64_t frozen = 0, resting = 0, resting_master = 0, buffers = 0;
  for (const ParameterSpec& spec : declaration.parameters) {
    if (!spec.trainable) frozen += spec.numel() * ElementBytes(spec.dtype, precision);
    if (!spec.trainable || IsTrained(spec, trainable)) continue;
    resting_master += spec.numel() * 4;
    resting += ElementBytes(spec.dtype, precision) == 2 ? spec.numel() * 6 : spec.numel() * 4;
  }
  for (const BufferSpec& spec : declaration.buffers) buffers += spec.numel() * 4;
  MemoryPlan plan;
  auto add = [&](const char* name, int64_t bytes) {
    if (bytes > 0) plan.components.push_back({name, bytes});
  };
  add("master parameters, fp32", flat * 4);
  add("parameters, bf16", precision == Precision::kBf16 ? flat * 2 : 0);
  add("gradients, fp32", flat * 4);
  add("AdamW moments, fp32", flat * 8);
  add("parameters of other stages", resting);
  add("frozen parameters", frozen);
  add("buffers", buffers);
  add("checkpoint in flight", (flat * 12 + resting_master + buffers + world - 1) / world);
  return plan;
}

}  // namespace trainyard
