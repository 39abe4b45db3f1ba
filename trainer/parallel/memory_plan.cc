#include "trainer/parallel/memory_plan.h"

#include <algorithm>
#include <map>

#include "trainer/comm/gloo.h"
#include "trainer/parallel/flat_layout.h"
#include "trainer/parallel/offloaded_update.h"
#include "trainer/parallel/reduce_every.h"
#include "trainer/parallel/unit_memory.h"

namespace trainyard {

int64_t MemoryPlan::total() const {
  int64_t sum = 0;
  for (const Component& component : components) sum += component.bytes;
  return sum;
}

int64_t MemoryPlan::on_gpu() const {
  int64_t sum = 0;
  for (const Component& component : components) sum += component.in_host ? 0 : component.bytes;
  return sum;
}

void MemoryPlan::Add(const char* name, int64_t bytes, bool in_host) {
  if (bytes > 0) components.push_back({name, bytes, in_host});
}

at::ScalarType TypeOf(DType dtype, Precision precision) {
  if (dtype != DType::kCompute) return dtype == DType::kBfloat16 ? at::kBFloat16 : at::kFloat;
  return precision == Precision::kBf16 ? at::kBFloat16 : precision == Precision::kFp16 ? at::kHalf : at::kFloat;
}

int64_t ElementBytes(DType dtype, Precision precision) {
  return static_cast<int64_t>(c10::elementSize(TypeOf(dtype, precision)));
}

namespace {

// What a checkpoint of a stage copies, on one of the ranks that share it.
int64_t InFlight(const ModelDeclaration& declaration, const ParallelShape& shape,
                 const std::vector<std::string>& trainable) {
  const int world = shape.world;
  int64_t bytes = FlatLayout(Trained(declaration, trainable), world).total() * (shape.averages ? 16 : 12);
  for (const ParameterSpec& spec : declaration.parameters) {
    if (spec.trainable && !IsTrained(spec, trainable)) bytes += spec.numel() * 4;
  }
  for (const BufferSpec& spec : declaration.buffers) bytes += spec.numel() * 4;
  return (bytes + world - 1) / world;
}

// What autograd holds before the engine gets it: it makes a parameter's gradient whole, once for each use, of which
// tied weights have two. The others of a unit are let go one by one, but of different sizes they have places of their
// own, which stay in memory for the next step.
int64_t InBackward(const ModelDeclaration& declaration, Precision precision,
                   const std::vector<std::string>& trainable) {
  int64_t largest = 0, largest_unit = 0;
  std::map<int, int64_t> units;
  for (const ParameterSpec& spec : Trained(declaration, trainable)) {
    const int64_t bytes = spec.numel() * ElementBytes(spec.dtype, precision);
    largest = std::max(largest, bytes);
    largest_unit = std::max(largest_unit, units[spec.unit.index] += bytes);
  }
  return 2 * largest + largest_unit;
}

int64_t TileBytes(const FlatLayout& layout, const ParallelShape& shape, at::ScalarType type, bool sharded) {
  const int64_t largest = sharded ? layout.LargestBucket(shape.bucket_bytes) / shape.world : layout.total();
  return OffloadedUpdate::Bytes(largest, type, shape.tile_bytes, shape.gpu);
}

}  // namespace

MemoryPlan PlanEngine(const ModelDeclaration& declaration, const ParallelShape& shape,
                      const std::vector<std::string>& trainable) {
  const bool pieces = InUnits(shape.stage, shape.world);
  const FlatLayout layout(Trained(declaration, trainable), shape.world, pieces);
  const Precision precision = shape.precision;
  const bool half = precision != Precision::kFp32, sharded = shape.stage != ZeroStage::kDdp && shape.world > 1;
  // Buckets are cut evenly, so each rank owns as much.
  const int64_t flat = layout.total(), owned = sharded ? flat / shape.world : flat;
  int64_t wide = 0;
  for (const ParameterSpec& spec : layout.parameters()) {
    if (half && (sharded || shape.offload) && spec.dtype == DType::kFloat32)
      wide += (spec.numel() + kBlock - 1) / kBlock * kBlock;
  }
  int64_t frozen = 0, resting = 0, buffers = 0;
  for (const ParameterSpec& spec : declaration.parameters) {
    const int64_t bytes = ElementBytes(spec.dtype, precision);
    if (!spec.trainable) frozen += spec.numel() * bytes;
    if (!spec.trainable || IsTrained(spec, trainable)) continue;
    resting += bytes == 2 ? spec.numel() * 6 : spec.numel() * 4;
  }
  for (const BufferSpec& spec : declaration.buffers) buffers += spec.numel() * 4;
  MemoryPlan plan;
  // In float32 the master is what forward computes with, so every rank has the whole; but where it is offloaded.
  const bool apart = half || shape.offload;
  const at::ScalarType type = TypeOf(DType::kCompute, precision);
  plan.Add("master parameters, fp32", (apart || pieces ? owned : flat) * 4, shape.offload);
  plan.Add(precision == Precision::kFp16   ? "parameters, fp16"
           : precision == Precision::kBf16 ? "parameters, bf16"
                                           : "parameters, fp32",
           apart ? (pieces ? owned : flat) * static_cast<int64_t>(c10::elementSize(type)) : 0);
  plan.Add("gathered parameters", pieces ? UnitMemory::Bytes(layout, type) : 0);
  plan.Add("parameters that stay fp32", wide * 4);
  const bool every = sharded && shape.reduce == Reduce::kEvery;
  plan.Add("gradients, fp32", (every ? owned : flat) * 4);
  plan.Add("gradient buckets, fp32", every ? ReduceEvery::SlotBytes(layout, shape.bucket_bytes) : 0);
  plan.Add("gradients on their way, bf16",
           shape.bf16_reduce && shape.world > 1 ? BF16Slots::Bytes(layout.LargestBucket(shape.bucket_bytes)) : 0);
  plan.Add("sums of the gradient's norm", flat / kBlock * 8);
  plan.Add("AdamW moments, fp32", owned * 8, shape.offload);
  plan.Add("averaged parameters, fp32", shape.averages ? owned * 4 : 0, shape.offload);
  plan.Add("offloaded optimizer's tiles", shape.offload ? TileBytes(layout, shape, type, sharded) : 0, true);
  plan.Add("parameters of other stages", resting);
  plan.Add("frozen parameters", frozen);
  plan.Add("buffers", buffers);
  return plan;
}

MemoryPlan PlanMemory(const ModelDeclaration& declaration, const ParallelShape& shape,
                      const std::vector<std::string>& trainable) {
  MemoryPlan plan = PlanEngine(declaration, shape, trainable);
  plan.Add("gradients in backward", InBackward(declaration, shape.precision, trainable));
  const int gloo_groups = shape.gpu ? 1 : 2;  // control; and tensors, where NCCL does not move them
  plan.Add("collectives", gloo_groups * GlooBufferBytes(shape.world), true);
  plan.Add("checkpoint in flight", InFlight(declaration, shape, trainable), true);
  return plan;
}

MemoryPlan PlanHandOver(const ModelDeclaration& declaration, const ParallelShape& shape,
                        const std::vector<std::string>& before, const std::vector<std::string>& after) {
  int64_t left = FlatLayout(Trained(declaration, before), shape.world).total() * 4;
  for (const ParameterSpec& spec : declaration.parameters) {
    if (!IsTrained(spec, before) && IsTrained(spec, after)) left += spec.numel() * 4;
  }
  for (const BufferSpec& spec : declaration.buffers) left += spec.numel() * 4;
  MemoryPlan plan = PlanEngine(declaration, shape, after);
  plan.Add("what the stage before leaves", left);
  plan.Add("checkpoint in flight", InFlight(declaration, shape, before), true);
  // Before that the old engine puts its master together, beside all that it holds where no gradient gives its place.
  if (shape.world == 1 || shape.reduce == Reduce::kLast) return plan;
  MemoryPlan leaving = PlanEngine(declaration, shape, before);
  leaving.Add("master parameters put together, fp32", left);
  leaving.Add("checkpoint in flight", InFlight(declaration, shape, before), true);
  return leaving.total() > plan.total() ? leaving : plan;
}

}  // namespace trainyard
