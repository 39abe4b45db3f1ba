// The trainer's configuration as plain structs: defaults beside the fields. What each field means,
// its type, limits and class (identity, schedule, free) is described once, in fields.cc, and for the
// fields of a task in its folder; docs/config.md is generated from there.
#ifndef TRAINYARD_TRAINER_CONFIG_CONFIG_H_
#define TRAINYARD_TRAINER_CONFIG_CONFIG_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/task_options.h"

namespace trainyard {

struct TaskConfig {
  std::string name;
  // The task's own fields, of its own type. Copies of a configuration share them; only loading
  // changes them. Null until the task is known.
  std::shared_ptr<TaskOptions> options;
};

struct DataConfig {
  std::string path;
  std::string last = "carry";  // carry | drop
  OptionalInt workers;
  OptionalInt prefetch;
};

struct BatchConfig {
  OptionalInt global;
  OptionalInt micro;
};

struct EarlyStopConfig {
  std::string metric;
  int64_t patience = 5;
  double min_delta = 0;
};

struct TrainConfig {
  OptionalInt steps;
  OptionalInt epochs;
  int64_t eval_every = 0;
  int64_t log_every = 10;
  bool activation_checkpointing = false;
  std::string record;
  EarlyStopConfig early_stop;
};

struct ParameterGroupConfig {
  std::string match;
  double lr = 1.0;
  std::optional<double> weight_decay;
};

struct OptimConfig {
  double lr = 3e-4;
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0.01;
  std::string decay = "all";  // all | matrices
  double clip = 1.0;
  std::string lr_scaling = "none";  // none | linear | sqrt
  std::vector<ParameterGroupConfig> groups;
  std::optional<double> ema_decay;  // of the parameters' moving average
};

struct ScheduleConfig {
  std::string name = "constant";  // constant | cosine | linear | onecycle | plateau
  int64_t warmup = 0;
  double min_lr = 0;
  double pct_start = 0.3;
  double div_factor = 25;
  double final_div_factor = 1e4;
  std::string metric;
  double factor = 0.1;
  int64_t patience = 10;
};

struct PrecisionConfig {
  std::string compute = "auto";  // auto | fp32 | bf16 | fp16
  double loss_scale = 65536;
  int64_t loss_scale_interval = 2000;
  std::string reduce = "fp32";  // fp32 | bf16
};

struct ParallelConfig {
  std::string device = "auto";  // auto | cpu | cuda
  std::string stage = "auto";   // auto | ddp | zero1 | zero2 | zero3
  double bucket_mib = 25;
  std::string reduce = "auto";  // auto | last | every
  std::string offload = "none";
  double rendezvous_seconds = 300;
  double collective_seconds = 600;
};

struct CheckpointConfig {
  std::string dir;
  int64_t every = 0;
  double minutes = 5;
  int64_t keep_last = 2;
  std::string keep_best;
  int64_t keep_every = 0;
  std::string resume = "auto";  // auto | never | a directory
};

struct RunConfig {
  std::string dir;
  int64_t seed = 42;
  bool deterministic = true;
};

struct InitConfig {
  std::string from;
};

struct FaultsConfig {
  std::string nonfinite = "stop";  // stop | skip
  int64_t max_skips = 10;
  std::string bad_sample = "fail";  // fail | skip
};

struct MetricsConfig {
  bool tensorboard = true;
  std::optional<double> peak_tflops;  // of what one rank computes on, in precision.compute
};

// Who has set a field.
enum class Origin { kFile, kCommandLine };

struct Config {
  TaskConfig task;
  DataConfig data;
  BatchConfig batch;
  TrainConfig train;
  OptimConfig optim;
  ScheduleConfig schedule;
  PrecisionConfig precision;
  ParallelConfig parallel;
  CheckpointConfig checkpoint;
  RunConfig run;
  InitConfig init;
  FaultsConfig faults;
  MetricsConfig metrics;
  // By path, of each field that was set, be it to its default. No part of what is written and compared.
  std::map<std::string, Origin> origins;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_CONFIG_CONFIG_H_
