// The process node agent: what the scheduler, the kubelet, the cluster's DNS and its service proxy are on a cluster.
// Pods of the in-memory API become processes; images are ignored, commands come from PATH.
#ifndef TRAINYARD_OPERATOR_LOCAL_NODE_AGENT_H_
#define TRAINYARD_OPERATOR_LOCAL_NODE_AGENT_H_

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "operator/base/log.h"
#include "operator/local/api/memory_api.h"
#include "operator/local/node/pod_runner.h"

namespace trainyard::local {

inline constexpr char kNodeName[] = "local";

class Agent {
 public:
  // `state`: the folder of pods and claims. `address_block` (1..254) makes the pods' addresses,
  // 127.block.x.y, differ from those of another agent on this machine. All references must outlive it.
  Agent(MemoryApi& api, const Clock& clock, const std::filesystem::path& state, int address_block, const Logger& log);
  // Stops as Stop does.
  ~Agent();

  // Ends processes that an earlier life left behind and marks their pods as disrupted; then works in
  // a thread of its own until Stop.
  void Start();
  // Takes no new pods and ends those that run, each within its grace; returns at once, see running(). Their
  // objects stay, and say that they were disrupted, as after a shutdown of a node.
  void Drain() { draining_ = true; }
  // Kills every process and returns when none is left.
  void Stop();
  // Whether any process runs. Thread-safe.
  int running() const { return running_.load(); }

  // The log of a container of a pod that exists; empty path when there is none. Thread-safe.
  std::filesystem::path LogPath(const Json& pod, const std::string& container) const;

 private:
  void Loop();
  void TakeChanges();
  void Adopt(const Json& pod);
  // What a pod that is gone had of its own on the disk.
  void Drop(const std::filesystem::path& root);
  // The same of those that an earlier life removed from the API, and then had no time for.
  void DropStrays(const Json& pods);
  // A claim is a folder: there is always room, and it is bound at once.
  void BindClaims();
  void AdvanceAll();
  std::optional<std::string> AddressOfHost(const std::string& pod, const std::string& subdomain,
                                           const std::string& ns) const;
  std::optional<std::string> AddressBehind(const std::string& service) const;
  void DrainAll();
  // Where Prometheus finds the workers that run: state/prometheus.json. Looks at the pods only when one has changed.
  void WriteScrapeTargets();
  void WriteStatus(PodRunner& runner);
  void EndEarlierLife();
  // Those that an earlier life started for `pod`. Returns whether there were any.
  bool EndProcesses(const Json& pod) const;
  // Of those, what it wrote down in the pod's folder.
  bool EndSessions(const std::filesystem::path& root) const;
  // The last step of a deletion: the pod has ended, and nobody needs it any more.
  void RemoveIfDeleted(const Json& pod);
  std::string NextAddress();

  MemoryApi& api_;
  const Clock& clock_;
  NodeFacts node_;
  const int address_block_;
  const Logger& log_;
  uint64_t since_ = 0, claims_since_ = 0;
  int addresses_ = 0;
  bool pods_changed_ = true;                                // since the targets were looked at
  std::string scrape_targets_;                              // as they were written last
  std::map<std::string, std::unique_ptr<PodRunner>> pods_;  // by uid
  std::atomic<bool> draining_{false}, stopping_{false};
  std::atomic<int> running_{0};
  std::thread thread_;
};

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_NODE_AGENT_H_
