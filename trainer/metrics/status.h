// What one rank says about itself, for /status, /metrics and the termination message.
#ifndef TRAINYARD_TRAINER_METRICS_STATUS_H_
#define TRAINYARD_TRAINER_METRICS_STATUS_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace trainyard {

// How a rank's attempt began. What is not known yet is null in JSON.
struct StartupTimes {
  std::optional<int64_t> step;  // where this attempt went on from
  // From the process' start until the ranks had met, and from there to the end of the first step.
  std::optional<double> rendezvous_seconds, first_step_seconds;

  nlohmann::json ToJson() const;
};

struct RankStatus {
  std::string job_uid;
  int64_t attempt = 0;
  int rank = 0, world = 1;
  std::string phase = "starting";
  int64_t step = 0, total_steps = 0;  // total_steps 0: both are unknown until the attempt has chosen where to start
  StartupTimes startup;
  double last_progress_time = 0;  // seconds since the epoch, like all times; 0: nothing was reported yet
  // Unknown before the first step of this attempt.
  std::optional<double> last_step_time, samples_per_second, eta_seconds, loss, learning_rate, grad_norm;
  // Unknown also where the task does not say what a sample costs, or nobody what can be computed at most.
  std::optional<double> tokens_per_second, mfu;
  std::optional<double> loss_scale;         // none where precision.compute is not fp16
  std::optional<double> host_memory_bytes;  // resident, of the rank's process
  struct {
    int64_t step = 0, time = 0;
    uint64_t bytes = 0;
    bool durable = false;
    std::optional<double> duration_seconds;  // unknown of another attempt's
    std::string path;                        // of the directory that holds it; absolute
  } checkpoint;
  double checkpoint_stall_seconds = 0;
  int64_t steps_ok = 0, steps_skipped = 0, micro_batch = 0;
  int64_t steps_nonfinite = 0;                       // of the skipped ones those for which no loss scale was to blame
  std::map<std::string, int64_t> telemetry_dropped;  // by sink
  std::map<std::string, double> phase_seconds;       // data, forward, backward, ...
  // Of the loader, empty before there is one: read, decode, transform and collate (of all its threads together), wait.
  std::map<std::string, double> data_seconds;
  std::map<std::string, int64_t> cache_reads;  // hit, miss; empty where no cache was asked
  std::vector<std::string> warnings;

  bool Reported() const { return last_progress_time > 0; }
  std::optional<int64_t> KnownStep() const { return total_steps > 0 ? std::optional(step) : std::nullopt; }
  // The documented fields of /status. What is unknown, or a number that is not finite, is null.
  nlohmann::json ToStatusJson() const;
  // Everything: what a rank hands to its launcher.
  nlohmann::json ToJson() const;
  static RankStatus FromJson(const nlohmann::json& json);
};

// A status that several threads read and update.
class StatusBoard {
 public:
  template <class F>
  void Update(F change) {
    const std::lock_guard lock(mutex_);
    change(status_);
  }
  // Any phase counts as progress: a rank that evaluates is not stalled.
  void Progress(const std::string& phase);
  // The phase goes on: what was to be read, written or waited for gets on. While it trains, steps alone say so.
  void Alive();
  // The ranks have met.
  void Joined(const std::string& job_uid, int64_t attempt);
  // A step is done, which is the first if none was before.
  void Stepped();
  RankStatus Get() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  // Seconds since the process began, or nearly so.
  double Age() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count(); }

  mutable std::mutex mutex_;
  RankStatus status_;
};

// The ranks of one pod in the Prometheus text format, labelled by rank; those that have reported.
std::string Exposition(const std::vector<RankStatus>& ranks);

double UnixTime();

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_METRICS_STATUS_H_
