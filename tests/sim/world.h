// A cluster for the simulation: a virtual clock, an API that fails as real ones do, kubelets that run
// workers which end as they please. Everything that is random comes from one seed.
#ifndef TRAINYARD_TESTS_SIM_WORLD_H_
#define TRAINYARD_TESTS_SIM_WORLD_H_

#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>

#include "operator/local/memory_api.h"
#include "operator/local/memory_client.h"

namespace trainyard::sim {

using kube::Json;

class VirtualClock : public Clock {
 public:
  Time Now() const override { return now_; }
  void Advance(double seconds) { now_ = After(now_, seconds); }

 private:
  Time now_ = *ParseTime("2026-01-01T00:00:00Z");
};

class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  bool Chance(double probability) { return std::uniform_real_distribution<double>(0, 1)(engine_) < probability; }
  int64_t Below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(engine_); }
  double Between(double a, double b) { return std::uniform_real_distribution<double>(a, b)(engine_); }

 private:
  std::mt19937_64 engine_;
};

// The operator dies in the middle of a call.
struct Crash {};

// What the caches of an API server may still believe: lists of a moment ago, and of minutes ago. Outlives
// the operators, which ask for such a list when they start.
class OldLists {
 public:
  explicit OldLists(const local::MemoryApi& api) : api_(api) {}
  // Keeps what there is now.
  void Record();
  // One of those that were kept, or the newest.
  const Json& Any(const kube::Resource& resource, Dice& dice) const;

 private:
  static constexpr size_t kKept = 30;
  const local::MemoryApi& api_;
  std::map<std::string, std::deque<Json>> lists_;  // by plural
};

// A client whose requests fail before or after they did their work, whose watches stop early, and
// whose lists from the cache ("0") may be old. `trouble` 0 turns all of it off.
class TroubledClient : public local::MemoryClient {
 public:
  TroubledClient(local::MemoryApi& api, const OldLists& old, Dice& dice, const double& trouble)
      : local::MemoryClient(api), api_(api), old_(old), dice_(dice), trouble_(trouble) {}

  Result<Json> Get(const kube::Resource& resource, const std::string& ns, const std::string& name) override;
  Result<Json> List(const kube::Resource& resource, const std::string& ns, const kube::ListOptions& options) override;
  Result<Json> Create(const kube::Resource& resource, const std::string& ns, const Json& object,
                      const kube::WriteOptions& options) override;
  Result<Json> MergePatch(const kube::Resource& resource, const std::string& ns, const std::string& name,
                          const std::string& subresource, const Json& patch,
                          const kube::WriteOptions& options) override;
  Status Delete(const kube::Resource& resource, const std::string& ns, const std::string& name,
                const kube::DeleteOptions& options) override;
  Status Watch(const kube::Resource& resource, const std::string& ns, const kube::WatchOptions& options,
               const std::function<bool(kube::WatchEvent)>& on_event, const kube::StopFlag& stop) override;

  int64_t writes() const { return writes_; }

 private:
  // What goes wrong with this call, if anything, before it is made.
  Status Before();
  // Whether the answer to a call that was made is lost.
  bool LosesAnswer();

  local::MemoryApi& api_;
  const OldLists& old_;
  Dice& dice_;
  const double& trouble_;
  int64_t writes_ = 0;
};

// Scheduler and kubelets: one step of the life of one pod at a time.
class Kubelets {
 public:
  struct Options {
    double failure = 0;        // chance that a worker of an attempt ends badly
    double disruption = 0;     // chance that a pod is evicted or vanishes
    double hang = 0;           // chance that a pod that is deleted stays, until Revive
    double silence = 0;        // chance that its peers wait for a worker that is gone
    int64_t good_attempt = 3;  // from this attempt on all goes well
  };
  Kubelets(local::MemoryApi& api, const Clock& clock, Dice& dice, Options options)
      : api_(api), clock_(clock), dice_(dice), options_(options) {}

  void Step();
  // The nodes of pods that hang come back.
  void Revive() { options_.hang = 0; }

  // Attempts of job uid that a worker ended badly in, by the worker's own doing: the truth that charged
  // restarts are compared with.
  std::map<std::string, std::set<int64_t>> failed;

 private:
  void Advance(const Json& pod);
  void Reject(const Json& pod);
  void Break(const std::string& job, int64_t attempt);
  void Finish(const Json& pod, int64_t code, const std::string& reason, bool target);

  local::MemoryApi& api_;
  const Clock& clock_;
  Dice& dice_;
  Options options_;
  // Attempts of job uid whose workers wait for one that is gone.
  std::map<std::string, std::set<int64_t>> broken_;
  std::set<std::string> hanging_;    // uids
  std::map<std::string, int> life_;  // by uid: steps that a running pod has left
};

}  // namespace trainyard::sim

#endif  // TRAINYARD_TESTS_SIM_WORLD_H_
