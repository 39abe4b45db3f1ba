// Scheduler, kubelets, nodes and the controllers beside ours: what becomes of pods.
#ifndef TRAINYARD_TESTS_SIM_CLUSTER_H_
#define TRAINYARD_TESTS_SIM_CLUSTER_H_

#include <map>
#include <set>
#include <string>

#include "tests/sim/training.h"

namespace trainyard::sim {

class Cluster {
 public:
  struct Options {
    double failure = 0;        // chance, a step, that a worker ends badly by its own doing
    double disruption = 0;     // chance that a pod is evicted, or deleted by someone
    double lost_node = 0;      // chance that a node stops answering
    double silence = 0;        // chance that nobody hears of a worker's end
    double hang = 0;           // chance, a step, that a run of ours stops getting on
    double stuck = 0;          // chance that a pod is never scheduled, or never starts
    int64_t good_attempt = 3;  // from this attempt on nothing goes wrong by itself
  };
  Cluster(local::MemoryApi& api, const Mirror& mirror, const Clock& clock, Dice& dice, Training& training,
          Options options)
      : api_(api), mirror_(mirror), clock_(clock), dice_(dice), training_(training), options_(options) {}

  // A moment of everybody's life.
  void Step();
  // Nodes come back, and nothing more goes wrong by itself: but what a job's image does wrong, it does.
  void Calm();

 private:
  void ChangeNodes();
  void Advance(const PodView& pod);
  void Terminate(const PodView& pod);
  void Bind(const PodView& pod);
  void Start(const PodView& pod);
  void Live(const PodView& pod, const Run& run);
  bool Harm(const PodView& pod);
  bool IsStuck(const PodView& pod, bool may);
  void Fail(const PodView& pod);
  void Reject(const PodView& pod);
  void Exit(const PodView& pod, int64_t code, const std::string& reason, bool target);
  std::string Message(const PodView& pod, int64_t code) const;
  void PatchStatus(const PodView& pod, const Json& status);

  local::MemoryApi& api_;
  const Mirror& mirror_;
  const Clock& clock_;
  Dice& dice_;
  Training& training_;
  Options options_;
  bool calm_ = false;
  std::set<std::string> lost_;   // nodes
  std::set<std::string> stuck_;  // pods, by uid
  std::map<std::string, Time> lost_since_;
  std::map<std::string, std::string> processes_;  // pod uid to node: what runs there, whatever the API says
};

}  // namespace trainyard::sim

#endif  // TRAINYARD_TESTS_SIM_CLUSTER_H_
