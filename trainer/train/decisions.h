// What is decided for a run, and why: a pure function of the hardware, the configuration and the world.
//
// A value of the command line wins over the file's, the file's over what is chosen here. docs/plan.md has the table of
// all rules and where each comes from.
#ifndef TRAINYARD_TRAINER_TRAIN_DECISIONS_H_
#define TRAINYARD_TRAINER_TRAIN_DECISIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/hardware/hardware.h"
#include "trainer/parallel/memory_plan.h"
#include "trainer/train/threads.h"

namespace trainyard {

enum class Source { kAuto, kFile, kCommandLine, kCheckpoint, kEnvironment };
const char* NameOf(Source source);  // "auto", "file", "command line", "checkpoint", "environment"

struct Decision {
  std::string name;   // stable, for scripts: "micro_batch"
  std::string label;  // for people: "micro-batch"
  std::variant<std::string, int64_t> value;
  Source source = Source::kAuto;
  std::string why;  // of an auto; may be empty elsewhere

  std::string Text() const;  // "4 (auto: ...)"
};

// What decides besides hardware and configuration.
struct Situation {
  int world = 1, ranks_here = 1;
  int64_t resumed_global = 0;           // of the checkpoint that training goes on from, or 0
  std::optional<int64_t> samples = {};  // of an epoch; nothing while nobody has read the data
  bool whole_share = false;             // a rank's share is one micro-batch (Task::batch_coupled)
  std::string omp_num_threads = {};     // as the environment has it
};

// Set where it is unset.
struct Variable {
  std::string name, value, why;
};

struct Decisions {
  std::string device;  // cpu | cuda
  bool deterministic = true;
  ParallelShape parallel;
  int64_t global_batch = 0, micro = 0, accumulation = 0;
  ThreadCount loader;
  int64_t prefetch = 2;  // micro-batches read ahead, of a rank
  ThreadCount threads;   // a rank computes with
  std::vector<Variable> environment;
  std::vector<Decision> list;  // all of them, in the order in which they are shown
};

// Throws ConfigError where a driver of GPUs does not answer that `auto` would use, and where numbers of the
// configuration do not fit together or the situation, naming them.
Decisions Decide(const Hardware& hardware, const Config& config, const Situation& situation);

// The configuration with what parallel.device, precision.compute and parallel.stage stand for here, and
// run.deterministic as the device allows it: whoever reads it later, maybe on another machine, need not decide again.
Config Resolved(const Config& config, const Decisions& decisions);

// For each variable that is unset: sets it. Call before anything computes on a device.
void Apply(const std::vector<Variable>& environment);

// "  hardware" and "  decided", a line for each part.
std::string Describe(const Hardware& hardware, const Decisions& decisions);

// What fits on one rank by its GPU's memory, as in the first guide's table: 16 samples from 20 GB on, 12 from 14, 8
// from 10, 4 from 6, else 2; 4 without GPUs. A GPU counts as its maker names it: the driver keeps some of it, and a "24
// GB" L4 reports 22.5 GiB, so what it reports is read in units of 10^9 bytes.
int64_t MicroOfClass(const Hardware& hardware);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_DECISIONS_H_
