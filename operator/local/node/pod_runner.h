// One pod as processes: init containers in order, then the containers together, then the end.
#ifndef TRAINYARD_OPERATOR_LOCAL_NODE_POD_RUNNER_H_
#define TRAINYARD_OPERATOR_LOCAL_NODE_POD_RUNNER_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "operator/base/clock.h"
#include "operator/local/api/pod_log.h"
#include "operator/local/node/pod_environment.h"
#include "operator/local/node/pod_files.h"
#include "operator/local/node/process.h"

namespace trainyard::local {

// What every pod of this machine needs to know.
struct NodeFacts {
  std::filesystem::path state;  // canonical
  std::string programs;         // the folder of Trainyard's own programs
  bool namespaces = false;      // whether processes can have mounts of their own
};

// Used by one thread, which must outlive the processes. Its destructor kills what still runs.
class PodRunner {
 public:
  // `pod` is bound and has its address. Nothing runs yet. `node` must outlive it.
  PodRunner(const NodeFacts& node, Json pod, const Clock& clock);
  ~PodRunner();

  // The newest object: annotations may have changed, and a deletion may have begun.
  void Update(const Json& pod);
  // Starts, signals and collects what is due. `resolver` may change its mind from call to call.
  void Advance(const Resolver& resolver);
  // pod.status as the kubelet would write it.
  Json PodStatus() const;
  // Every process has ended, and none will start.
  bool Ended() const;
  const Json& pod() const { return pod_; }
  const PodFiles& files() const { return files_; }
  // The node goes down: SIGTERM, SIGKILL at `kill_at`, and the pod says that it was disrupted. Of several
  // calls the earliest `kill_at` counts.
  void Drain(Time kill_at);
  // Sends SIGKILL to everything that runs.
  void Kill();

 private:
  struct Container {
    std::string name;
    const Json* spec;  // inside pod_
    std::optional<Process> process;
    std::optional<Time> started, finished;
    std::string waiting_reason = "PodInitializing", waiting_message;
    Json terminated;  // the state, once ended
    std::optional<LogTimes> log_times;
  };
  void ListContainers();
  void StartContainer(Container& container, const Resolver& resolver);
  Status Prepare() const;
  void Misconfigured(Container& container, const Status& why);
  void Refuse(Container& container, int exit_code, const std::string& reason, const std::string& message);
  void Collect(Container& container);
  void BeginDeletion();
  Json ContainerStatus(const Container& container, bool init) const;
  std::string TerminationText(const Container& container, bool failed) const;
  void RecordProcesses() const;

  Json pod_;
  const Clock& clock_;
  const NodeFacts& node_;
  PodFiles files_;
  std::vector<Container> init_, main_;
  bool prepared_ = false, stopping_ = false;
  std::optional<Time> draining_;  // since when
  std::optional<Time> kill_at_;
  Time created_;
};

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_NODE_POD_RUNNER_H_
