// A child process with mounts of its own, which needs no root where the kernel allows user namespaces
// to everyone (user_namespaces(7), mount_namespaces(7), pivot_root(2)).
#ifndef TRAINYARD_OPERATOR_LOCAL_MOUNT_NAMESPACE_H_
#define TRAINYARD_OPERATOR_LOCAL_MOUNT_NAMESPACE_H_

#include <filesystem>
#include <string>
#include <vector>

#include "operator/local/mount_plan.h"

namespace trainyard::local {

class MountNamespace {
 public:
  // For children of this process, as the user it has now.
  explicit MountNamespace(std::vector<MountStep> steps);

  // Between fork and exec: moves the calling process into namespaces of its own and makes the steps.
  // Only system calls. 0, or errno with `failed` = the step, -1 for the namespaces themselves; then the
  // process is good for nothing but _exit. Inside, the user keeps his number and no other exists.
  // What PR_SET_PDEATHSIG was set to is lost.
  int Enter(int& failed) const;
  // "mount /a at /b": what the step was about.
  std::string Describe(int failed) const;

 private:
  const std::vector<MountStep> steps_;
  const std::string user_map_, group_map_;
};

// Whether a volume can be given a mount path here: tries it in a child. `folder` exists and is writable.
bool MountNamespacesWork(const std::filesystem::path& folder);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_MOUNT_NAMESPACE_H_
