#include "trainer/train/decisions.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>

#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/train/plan.h"

namespace trainyard {
namespace {

using Long = long long;

constexpr int64_t kGlobal = 256;  // samples of a step that an auto batch comes near to, from below
constexpr int64_t kCpuMicro = 4, kCpuAccumulation = 8;
// A given batch is cut into pieces that host memory holds: the guide's 4 of its own large model are a tenth slower for
// small ones (docs/architecture.md).
constexpr int64_t kCpuMost = 64;
constexpr double kGB = 1e9;
constexpr double kSixteen = 15.5;  // a T4 of 16 GB reports 15.8
constexpr uint64_t kGiB = uint64_t{1} << 30;

Source SourceOf(const Config& config, const std::string& field) {
  const auto origin = config.origins.find(field);
  if (origin == config.origins.end()) return Source::kAuto;
  return origin->second == Origin::kCommandLine ? Source::kCommandLine : Source::kFile;
}

int64_t LargestDivisor(int64_t n, int64_t limit) {
  int64_t best = 1;
  for (int64_t d = 1; d <= std::min(n, limit); ++d) {
    if (n % d == 0) best = d;
  }
  return best;
}

std::string Human(uint64_t bytes) { return HumanBytes(static_cast<double>(bytes)); }

std::string LeastGpu(const Hardware& hardware) {
  return Format("%.3g GB on the smallest GPU", static_cast<double>(hardware.LeastGpuBytes()) / kGB);
}

bool GpuBelow(const Hardware& hardware, double gigabytes) {
  return !hardware.gpus.empty() && static_cast<double>(hardware.LeastGpuBytes()) < gigabytes * kGB;
}

// The lowest compute capability, as major x 10 + minor.
int LeastCapability(const Hardware& hardware) {
  int least = 1000;
  for (const Gpu& gpu : hardware.gpus) least = std::min(least, gpu.major * 10 + gpu.minor);
  return least;
}

class Decider {
 public:
  Decider(const Hardware& hardware, const Config& config, const Situation& situation)
      : hardware_(hardware), config_(config), at_(situation) {}

  Decisions Run() {
    DeviceOfRun();
    Deterministic();
    Stage();
    PrecisionOfRun();
    Batch();
    Readers();
    Threads();
    Environment();
    return std::move(out_);
  }

 private:
  void Add(std::string name, std::string label, std::variant<std::string, int64_t> value, Source source,
           std::string why) {
    out_.list.push_back({std::move(name), std::move(label), std::move(value), source, std::move(why)});
  }
  // Of a field that is not auto.
  Source Given(const char* field) const { return SourceOf(config_, field); }

  void DeviceOfRun() {
    const bool automatic = config_.parallel.device == "auto";
    if (automatic && !hardware_.gpu_problem.empty())
      throw ConfigError("parallel.device: auto: NVIDIA's driver is there and does not answer (" +
                        hardware_.gpu_problem + "); cpu computes on the host's processors");
    if (config_.parallel.device == "cuda" && hardware_.gpus.empty()) {
      const std::string& why = hardware_.gpu_problem.empty() ? hardware_.unused_gpus : hardware_.gpu_problem;
      if (!why.empty())  // without a driver there is none, and the plug-in says so when it is opened
        throw ConfigError("parallel.device: cuda: " + why + "; with cpu ranks compute on the host's processors");
    }
    out_.device = !automatic ? config_.parallel.device : hardware_.gpus.empty() ? "cpu" : "cuda";
    const std::string why = !automatic ? "" : hardware_.gpus.empty() ? "no GPU to use" : "a GPU for each rank";
    Add("device", "device", out_.device, automatic ? Source::kAuto : Given("parallel.device"), why);
    if (out_.device == "cuda" && config_.precision.reduce == "bf16")
      throw ConfigError(
          "precision.reduce: bf16 sums are rounded once, and NCCL rounds each addition; with parallel.device: cuda it "
          "is fp32");
  }

  void Deterministic() {
    out_.deterministic = config_.run.deterministic;
    const char* operation = config_.task.options->NotDeterministicOnGpu();
    if (out_.device != "cuda" || !operation || !out_.deterministic) return;
    const std::string lacks = Format("LibTorch has no deterministic gradient of %s on a GPU", operation);
    if (Given("run.deterministic") != Source::kAuto)
      throw ConfigError("run.deterministic: " + lacks + "; set it to false, or parallel.device to cpu");
    out_.deterministic = false;
    Add("deterministic", "deterministic", "false", Source::kAuto, lacks);
  }

  void Stage() {
    Config chosen = config_;
    std::string why;
    const bool automatic = config_.parallel.stage == "auto";
    if (automatic) {
      chosen.parallel.stage = "ddp";
      if (hardware_.gpus.empty()) {
        why = "without GPUs nothing is shared out";
      } else if (at_.world == 1) {
        why = "one GPU shares with nobody";
      } else if (GpuBelow(hardware_, 6)) {
        chosen.parallel.stage = "zero3";
        why = LeastGpu(hardware_) + ", below 6: parameters are shared out as well";
      } else {
        chosen.parallel.stage = "zero2";
        why = Format("%d GPUs share out the optimizer's state", at_.world);
      }
    }
    chosen.parallel.device = out_.device;
    out_.parallel = ShapeOf(chosen, at_.world);
    Add("stage", "stage", chosen.parallel.stage, automatic ? Source::kAuto : Given("parallel.stage"), why);
    const bool reduce = config_.parallel.reduce == "auto";
    Add("reduce", "reduce", out_.parallel.reduce == Reduce::kEvery ? "every" : "last",
        reduce ? Source::kAuto : Given("parallel.reduce"),
        !reduce                                  ? ""
        : out_.parallel.reduce == Reduce::kEvery ? "zero3 holds no whole gradient"
                                                 : "gradients are summed once a step");
    Add("offload", "offload", config_.parallel.offload, Given("parallel.offload"),
        hardware_.gpus.empty() ? "without GPUs the optimizer's state is in host memory anyway"
        : GpuBelow(hardware_, kSixteen)
            ? LeastGpu(hardware_) + ", below 16: `optimizer` puts the optimizer's state into host memory"
            : LeastGpu(hardware_) + ", 16 or more: the optimizer's state stays there");
  }

  void PrecisionOfRun() {
    Precision& precision = out_.parallel.precision;
    std::string why;
    const bool automatic = config_.precision.compute == "auto";
    if (automatic && hardware_.gpus.empty()) {
      why = "without a GPU";
    } else if (automatic) {
      const int capability = LeastCapability(hardware_);
      precision = capability >= 80 ? Precision::kBf16 : capability >= 70 ? Precision::kFp16 : Precision::kFp32;
      why = Format("compute capability %d.%d: bf16 from 8.0, fp16 from 7.0", capability / 10, capability % 10);
    }
    Add("precision", "precision", NameOf(precision), automatic ? Source::kAuto : Given("precision.compute"), why);
  }

  int64_t LargestShare() const { return (out_.global_batch + at_.world - 1) / at_.world; }

  std::string ClassReason() const { return hardware_.gpus.empty() ? "without GPUs" : LeastGpu(hardware_); }

  void Batch() {
    const OptionalInt &global = config_.batch.global, &micro = config_.batch.micro;
    const bool kept = global || at_.resumed_global > 0;
    std::string why_global;
    if (kept) {
      out_.global_batch = global.value_or(at_.resumed_global);
    } else {
      why_global = AutoGlobal();
    }
    const int64_t share = LargestShare();
    std::string why_micro;
    if (micro) {
      out_.micro = std::min(*micro, share);  // a job that goes on with more ranks has smaller shares
      if (at_.whole_share && *micro < share) {
        throw ConfigError(
            Format("batch.micro: %lld is not allowed for the task %s, whose samples of a batch interact: a rank's "
                   "share of %lld is one micro-batch",
                   static_cast<Long>(*micro), config_.task.name.c_str(), static_cast<Long>(share)));
      }
      if (out_.micro < *micro) why_micro = Format("a rank's share is %lld", static_cast<Long>(share));
    } else {
      why_micro = AutoMicro(global.has_value(), share);
    }
    out_.accumulation = (share + out_.micro - 1) / out_.micro;
    Add("micro_batch", "micro-batch", out_.micro, micro ? Given("batch.micro") : Source::kAuto, why_micro);
    Add("accumulation", "accumulation", out_.accumulation, Source::kAuto,
        Format("a rank's share of %lld in micro-batches of %lld", static_cast<Long>(share),
               static_cast<Long>(out_.micro)));
    Add("global_batch", "global batch", out_.global_batch,
        global ? Given("batch.global")
        : kept ? Source::kCheckpoint
               : Source::kAuto,
        why_global);
  }

  // Sets the global batch; returns why.
  std::string AutoGlobal() {
    const int64_t world = at_.world, wanted = std::min(config_.batch.micro.value_or(MicroOfClass(hardware_)), kMost);
    const bool cpu = hardware_.gpus.empty() && !config_.batch.micro;
    int64_t accumulation = cpu ? kCpuAccumulation : std::max<int64_t>(1, kGlobal / (wanted * world));
    if (at_.whole_share && !cpu) accumulation = 1;
    out_.global_batch = wanted * world * accumulation;
    std::string why = Format("%lld x %lld ranks x %lld", static_cast<Long>(wanted), static_cast<Long>(world),
                             static_cast<Long>(accumulation));
    why += cpu                 ? ", without GPUs"
           : accumulation == 1 ? ""
                               : Format(", the most that stays within %lld", static_cast<Long>(kGlobal));
    if (at_.samples && *at_.samples < out_.global_batch) {
      out_.global_batch = *at_.samples;
      why = "all samples of the data set";
    }
    return why;
  }

  // Sets the micro-batch; returns why. `given`: the configuration names the global batch. One that a checkpoint kept
  // was chosen as here, and is cut as it was then: the sums of a run that goes on have the order of one that never
  // stopped.
  std::string AutoMicro(bool given, int64_t share) {
    if (at_.whole_share) {
      out_.micro = share;
      return "the samples of a batch interact: a rank's whole share";
    }
    const int64_t of_class = MicroOfClass(hardware_);
    const int64_t most = given && hardware_.gpus.empty() ? kCpuMost : of_class;
    const int64_t pieces = (share + most - 1) / most;
    const bool even = out_.global_batch % at_.world == 0;
    out_.micro = even ? LargestDivisor(share, most) : (share + pieces - 1) / pieces;
    return out_.micro == of_class && !given
               ? ClassReason()
               : Format("the %s of a rank's share of %lld that is not above %lld, %s",
                        even ? "largest divisor" : "most even cut", static_cast<Long>(share), static_cast<Long>(most),
                        ClassReason().c_str());
  }

  void Readers() {
    out_.loader = LoaderThreads(config_.data.workers, hardware_.cpus, at_.ranks_here);
    Add("loader_threads", "loader threads", int64_t{out_.loader.count},
        config_.data.workers ? Given("data.workers") : Source::kAuto, out_.loader.why);
    const uint64_t memory = hardware_.memory.bytes;
    out_.prefetch = config_.data.prefetch.value_or(memory > 64 * kGiB ? 4 : memory > 32 * kGiB ? 3 : 2);
    Add("prefetch", "prefetch", out_.prefetch, config_.data.prefetch ? Given("data.prefetch") : Source::kAuto,
        config_.data.prefetch ? "" : Format("%s of memory: 4 above 64 GiB, 3 above 32, else 2", Human(memory).c_str()));
  }

  void Threads() {
    out_.threads = ComputeThreads(at_.omp_num_threads, hardware_.cpus, at_.ranks_here);
    const Source source = at_.omp_num_threads.empty() ? Source::kAuto : Source::kEnvironment;
    Add("omp_num_threads", "OMP threads", int64_t{out_.threads.count}, source, out_.threads.why);
    Add("optimizer_threads", "optimizer threads", int64_t{out_.threads.count}, source,
        "the rank's own: the optimizer runs when forward and backward have ended");
  }

  void Environment() {
    if (out_.device == "cpu") return;
    if (out_.deterministic) out_.environment.push_back({"CUBLAS_WORKSPACE_CONFIG", ":4096:8", "run.deterministic"});
    out_.environment.push_back({"PYTORCH_ALLOC_CONF", "expandable_segments:True", "less of a GPU is lost to gaps"});
    out_.environment.push_back({"NCCL_DEBUG", "WARN", "an error says its cause"});
  }

  static constexpr int64_t kMost = int64_t{1} << 24;  // as in the field: the products stay in range

  const Hardware& hardware_;
  const Config& config_;
  const Situation& at_;
  Decisions out_;
};

}  // namespace

const char* NameOf(Source source) {
  switch (source) {
    case Source::kFile:
      return "file";
    case Source::kCommandLine:
      return "command line";
    case Source::kCheckpoint:
      return "checkpoint";
    case Source::kEnvironment:
      return "environment";
    case Source::kAuto:
      break;
  }
  return "auto";
}

std::string Decision::Text() const {
  const auto* number = std::get_if<int64_t>(&value);
  return (number ? std::to_string(*number) : std::get<std::string>(value)) + " (" + NameOf(source) +
         (why.empty() ? "" : ": " + why) + ")";
}

int64_t MicroOfClass(const Hardware& hardware) {
  if (hardware.gpus.empty()) return kCpuMicro;
  const double gigabytes = static_cast<double>(hardware.LeastGpuBytes()) / kGB;
  return gigabytes >= 20 ? 16 : gigabytes >= 14 ? 12 : gigabytes >= 10 ? 8 : gigabytes >= 6 ? 4 : 2;
}

Decisions Decide(const Hardware& hardware, const Config& config, const Situation& situation) {
  return Decider(hardware, config, situation).Run();
}

Config Resolved(const Config& config, const Decisions& decisions) {
  Config resolved = config;
  resolved.parallel.device = decisions.device;
  resolved.run.deterministic = decisions.deterministic;
  resolved.precision.compute = NameOf(decisions.parallel.precision);
  resolved.parallel.stage = NameOf(decisions.parallel.stage);
  return resolved;
}

void Apply(const std::vector<Variable>& environment) {
  for (const Variable& variable : environment) setenv(variable.name.c_str(), variable.value.c_str(), 0);
}

std::string Describe(const Hardware& hardware, const Decisions& decisions) {
  std::string text = "  hardware\n";
  const auto line = [&](const std::string& name, const std::string& value) {
    text += Format("    %-18s %s\n", name.c_str(), value.c_str());
  };
  for (const HardwareLine& part : Describe(hardware)) line(part.name, part.value);
  text += "  decided\n";
  for (const Decision& decision : decisions.list) line(decision.label, decision.Text());
  for (const Variable& variable : decisions.environment)
    line("environment", variable.name + "=" + variable.value + " (where it is unset: " + variable.why + ")");
  return text;
}

}  // namespace trainyard
