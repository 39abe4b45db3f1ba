// A child process with mounts of its own, which needs no root where the kernel allows user namespaces
// to everyone (user_namespaces(7), mount_namespaces(7), pivot_root(2)).
#ifndef TRAINYARD_OPERATOR_LOCAL_NODE_MOUNT_NAMESPACE_H_
#define TRAINYARD_OPERATOR_LOCAL_NODE_MOUNT_NAMESPACE_H_

#include <filesystem>
#include <string>
#include <vector>

#include "operator/local/node/mount_plan.h"

namespace trainyard::local {

// Unshare and Make are for a child between fork and exec: only system calls. After a failure the process is
// good for nothing but _exit.
class MountNamespace {
 public:
  // For children of this process, as the user it has now.
  explicit MountNamespace(std::vector<MountStep> steps);

  // Moves the calling process into namespaces of its own; 0 or errno. Inside a user namespace, which is
  // for everyone but root, the user keeps his number and no other exists. (Root would lose the files of
  // others in one, and is refused instead.) What PR_SET_PDEATHSIG was set to may be lost.
  int Unshare() const;
  // Makes the steps; 0, or errno with `failed` = the step.
  int Make(int& failed) const;
  // "mount /a at /b": what the step was about.
  std::string Describe(int failed) const;

 private:
  const std::vector<MountStep> steps_;
  const std::string user_map_, group_map_;
};

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_NODE_MOUNT_NAMESPACE_H_
