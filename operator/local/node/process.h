// One child process of a pod: a session of its own, killed with its parent, output to a file.
#ifndef TRAINYARD_OPERATOR_LOCAL_NODE_PROCESS_H_
#define TRAINYARD_OPERATOR_LOCAL_NODE_PROCESS_H_

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "operator/base/status.h"
#include "operator/local/node/mount_namespace.h"

namespace trainyard::local {

struct ProcessSpec {
  std::vector<std::string> command;      // command[0] is searched in the PATH of `environment`
  std::vector<std::string> environment;  // NAME=value
  std::string directory;                 // empty: this process's own
  std::string output;                    // regular file that stdout and stderr are appended to; empty: nowhere
  // The mounts that it sees; command and directory are looked up there. Nothing: this process's own.
  std::optional<MountNamespace> mounts;
};

struct ProcessEnd {
  int exit_code = 0;  // 128 + signal when killed by one
  int signal = 0;
};

class Process {
 public:
  // kNotFound when there is no such command, kInternal when the system refuses, kDeadline when it does
  // neither within half a minute (a mount of a file system that does not answer); nothing runs then.
  // The calling thread must live as long as the process: when it ends, the kernel kills the process.
  static Result<Process> Start(const ProcessSpec& spec);

  pid_t pid() const { return pid_; }
  // The end, once there is one; does not wait.
  std::optional<ProcessEnd> Poll();
  // To the process group, so that a shell's children hear it too; SIGKILL to the whole session.
  void Signal(int number) const;

 private:
  explicit Process(pid_t pid) : pid_(pid) {}
  pid_t pid_;
  std::optional<ProcessEnd> end_;
};

// Whether a process that is started from here can have mounts of its own: tries it. `folder` exists and is
// writable. Otherwise what refused.
Status TryMounts(const std::filesystem::path& folder);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_NODE_PROCESS_H_
