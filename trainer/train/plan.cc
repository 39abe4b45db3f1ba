#include "trainer/train/plan.h"

#include <algorithm>

#include "trainer/base/environment.h"
#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/kernels/kernels.h"
#include "trainer/optim/schedule.h"
#include "trainer/train/usable_gpus.h"

namespace trainyard {
namespace {

using Long = long long;
std::string DescribeInterval(const CheckpointConfig& checkpoint) {
  if (checkpoint.every > 0) return Format(", every %lld steps", static_cast<Long>(checkpoint.every));
  if (checkpoint.minutes > 0) return Format(", every %g minutes and at the end", checkpoint.minutes);
  return ", at the end: a run that is killed starts again from the beginning";
}

// "16 = micro 4 x accumulation 2 x ranks 2", or how unequal shares are made up.
std::string DescribeBatch(const Plan& plan) {
  const auto global = static_cast<Long>(plan.global_batch), micro = static_cast<Long>(plan.micro);
  if (plan.micro * plan.accumulation * plan.world == plan.global_batch)
    return Format("%lld = micro %lld x accumulation %lld x ranks %d", global, micro,
                  static_cast<Long>(plan.accumulation), plan.world);
  const auto least = static_cast<Long>(plan.ShareOf(plan.world - 1).size()),
             most = static_cast<Long>(plan.ShareOf(0).size());
  const std::string share = least == most ? Format("%lld", most) : Format("%lld to %lld", least, most);
  return Format("%lld over %d ranks: %s samples each, in micro-batches of at most %lld", global, plan.world,
                share.c_str(), micro);
}

// What gradients that are summed with every micro-batch cost; empty where they are not.
std::string DescribeReduce(const Plan& plan) {
  if (plan.parallel.reduce == Reduce::kLast) return "";
  const auto times = static_cast<Long>(plan.accumulation);
  return Format(", gradients summed with each micro-batch: %lld time%s the traffic of parallel.reduce: last", times,
                times == 1 ? "" : "s");
}

std::string DescribePrecision(Precision precision) {
  const std::string name = NameOf(precision);
  return precision == Precision::kFp32 ? name : name + " with fp32 master";
}

// Nothing where an epoch holds every sample.
std::string DescribeWindow(const Plan& plan, int64_t num_samples) {
  if (plan.window >= num_samples) return "";
  return Format("%lld an epoch, %lld others in the next, ", static_cast<Long>(plan.window),
                static_cast<Long>(plan.window_replaced));
}

}  // namespace

Range Plan::ShareOf(int rank) const {
  const int64_t least = global_batch / world,
                more = global_batch % world;  // the first `more` ranks have one sample more
  const int64_t begin = rank * least + std::min<int64_t>(rank, more);
  return {begin, begin + least + (rank < more ? 1 : 0)};
}

Precision PrecisionOf(const Config& config) {
  return config.precision.compute == "bf16"   ? Precision::kBf16
         : config.precision.compute == "fp16" ? Precision::kFp16
                                              : Precision::kFp32;
}

const char* NameOf(Precision precision) {
  return precision == Precision::kBf16 ? "bf16" : precision == Precision::kFp16 ? "fp16" : "fp32";
}

ParallelShape ShapeOf(const Config& config, int world) {
  const ParallelConfig& parallel = config.parallel;
  return {.stage = parallel.stage == "zero1"   ? ZeroStage::kZero1
                   : parallel.stage == "zero2" ? ZeroStage::kZero2
                   : parallel.stage == "zero3" ? ZeroStage::kZero3
                                               : ZeroStage::kDdp,
          .precision = PrecisionOf(config),
          .world = world,
          .reduce = parallel.reduce == "every" || (parallel.reduce == "auto" && parallel.stage == "zero3")
                        ? Reduce::kEvery
                        : Reduce::kLast,
          .bucket_bytes = static_cast<int64_t>(parallel.bucket_mib * (1 << 20)),
          .averages = config.optim.ema_decay.has_value(),
          .bf16_reduce = config.precision.reduce == "bf16",
          .offload = parallel.offload == "optimizer",
          .gpu = parallel.device == "cuda"};
}

const char* NameOf(ZeroStage stage) {
  switch (stage) {
    case ZeroStage::kZero1:
      return "zero1";
    case ZeroStage::kZero2:
      return "zero2";
    case ZeroStage::kZero3:
      return "zero3";
    case ZeroStage::kDdp:
      break;
  }
  return "ddp";
}

Grounds GroundsHere(const Config& given, const World& world) {
  const bool on_cpus = given.parallel.device == "cpu";
  Grounds grounds{given, world, SeeHardware(given.checkpoint.dir, !on_cpus), EnvText("OMP_NUM_THREADS")};
  if (on_cpus) grounds.hardware.unused_gpus = "not asked for: parallel.device is cpu";
  PutAsideUnusable(grounds.hardware);
  return grounds;
}

Decisions DecideWithoutData(const Grounds& grounds) {
  return Decide(grounds.hardware, grounds.given,
                {.world = grounds.world.size,
                 .ranks_here = grounds.world.local_size,
                 .omp_num_threads = grounds.omp_num_threads});
}

Decisions DecideFor(const Grounds& grounds, const Task& task, int64_t resumed_global) {
  return Decide(grounds.hardware, grounds.given,
                {.world = grounds.world.size,
                 .ranks_here = grounds.world.local_size,
                 .resumed_global = resumed_global,
                 .samples = task.MakeOrder(static_cast<uint64_t>(grounds.given.run.seed))->items(),
                 .whole_share = task.batch_coupled(),
                 .omp_num_threads = grounds.omp_num_threads});
}

Plan MakePlan(const Config& config, const Decisions& decisions, const Order& order) {
  const int64_t num_samples = order.items();
  Plan plan;
  plan.window = num_samples;
  plan.window_replaced = order.replaced();
  plan.global_batch = decisions.global_batch;
  if (config.batch.global.value_or(0) > num_samples) {
    throw ConfigError(Format("batch.global: %lld is more than the %lld samples of %s",
                             static_cast<Long>(plan.global_batch), static_cast<Long>(num_samples),
                             order.replaced() > 0 ? "a window (data.cache.rate, data.cache.bytes)" : "the data set"));
  }
  plan.world = decisions.parallel.world;
  plan.micro = decisions.micro;
  plan.accumulation = decisions.accumulation;
  const bool drop = config.data.last == "drop";
  const int64_t epoch = drop ? num_samples / plan.global_batch * plan.global_batch : num_samples;
  if (epoch == 0) {
    throw ConfigError(Format("batch.global: %lld is more than the %lld samples of an epoch, and data.last is drop",
                             static_cast<Long>(plan.global_batch), static_cast<Long>(num_samples)));
  }
  plan.epoch_samples = epoch;
  plan.total_steps = config.train.steps ? *config.train.steps
                                        : (*config.train.epochs * epoch + plan.global_batch - 1) / plan.global_batch;
  plan.schedule_steps = plan.total_steps;
  plan.parallel = decisions.parallel;
  plan.lr_world = plan.world;
  plan.peak_lr = ScaledRate(config.optim, plan.lr_world);
  return plan;
}

void RequireSameWindow(const Plan& plan, const std::optional<std::pair<int64_t, int64_t>>& saved) {
  if (!saved || *saved == std::pair(plan.window, plan.window_replaced)) return;
  throw ConfigError(
      Format("the checkpoint's epochs hold %lld samples, of which %lld are replaced, and those of this "
             "program %lld and %lld; go on with the program that wrote it",
             static_cast<long long>(saved->first), static_cast<long long>(saved->second),
             static_cast<long long>(plan.window), static_cast<long long>(plan.window_replaced)));
}

std::string Describe(const Plan& plan, const Config& config, int64_t num_parameters, int64_t num_samples) {
  const double steps_per_epoch = static_cast<double>(plan.epoch_samples) / static_cast<double>(plan.global_batch);
  const double epochs = static_cast<double>(plan.total_steps) / steps_per_epoch;
  std::string text;
  auto line = [&](const char* name, const std::string& value) { text += Format("  %-12s %s\n", name, value.c_str()); };
  line("task", config.task.name + ", " + config.task.options->Describe());
  line("model", Format("%lld parameters, %s, kernels %s", static_cast<Long>(num_parameters),
                       DescribePrecision(plan.parallel.precision).c_str(), kernels::Kernels().name));
  line("data", Format("%s: %lld samples, %s%.4g steps per epoch", config.data.path.c_str(),
                      static_cast<Long>(num_samples), DescribeWindow(plan, num_samples).c_str(), steps_per_epoch));
  line("batch", DescribeBatch(plan));
  line("steps", Format("%lld (%.2f epochs)", static_cast<Long>(plan.total_steps), epochs));
  line("optimizer",
       Format("AdamW, lr %g%s, %s, warm-up %lld, clip %g", plan.peak_lr,
              plan.peak_lr == config.optim.lr
                  ? ""
                  : Format(" (%g, scaled %s)", config.optim.lr, config.optim.lr_scaling.c_str()).c_str(),
              config.schedule.name.c_str(), static_cast<Long>(config.schedule.warmup), config.optim.clip) +
           (config.optim.ema_decay ? Format(", weights averaged with decay %g", *config.optim.ema_decay) : ""));
  line("parallel", Format("%s, buckets of %g MiB", NameOf(plan.parallel.stage), config.parallel.bucket_mib) +
                       DescribeReduce(plan) +
                       (plan.parallel.bf16_reduce && plan.world > 1 ? ", gradients sent in bf16" : "") +
                       (plan.parallel.offload ? ", optimizer in host memory" : ""));
  line("run.dir", config.run.dir);
  line("checkpoints", config.checkpoint.dir + DescribeInterval(config.checkpoint));
  return text;
}

}  // namespace trainyard
