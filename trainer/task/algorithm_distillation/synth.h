// `trainyard synth algorithm_distillation`: a data set in the original's format, with its truth.
#ifndef TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_SYNTH_H_
#define TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_SYNTH_H_

#include <cstdint>
#include <filesystem>
#include <string>

namespace trainyard::ad {

struct SynthOptions {
  std::string source = "shared_q";  // shared_q | ad_epsilon | ppo
  std::string env = "darkroom";     // darkroom | darkroom_permuted
  std::string size = "small";       // tiny | small | full
  std::string format = "hdf5";      // hdf5 | npy
  uint64_t seed = 42;
  int threads = 0;  // 0: one per processor
};

// Writes the histories and truth.json into `out`, with a progress bar on standard error.
// The same options give the same bytes. Throws UsageError for a value that is not allowed,
// ConfigError when `out` cannot be written.
void Synthesize(const SynthOptions& options, const std::filesystem::path& out);

}  // namespace trainyard::ad

#endif  // TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_SYNTH_H_
