// Which mounts make a pod's volumes appear at their mount paths, on top of this machine's own files.
#ifndef TRAINYARD_OPERATOR_LOCAL_NODE_MOUNT_PLAN_H_
#define TRAINYARD_OPERATOR_LOCAL_NODE_MOUNT_PLAN_H_

#include <string>
#include <vector>

#include "operator/base/status.h"

namespace trainyard::local {

// One volume of one container.
struct Mount {
  std::string at;      // absolute, normal; need not exist on this machine
  std::string source;  // a folder or a file of this machine
  bool read_only = false;
  bool operator==(const Mount&) const = default;
};

// One system call (or, for kReadOnly and kEnter, a fixed few).
struct MountStep {
  enum class Kind {
    kStaging,   // a tmpfs at `target` that no other mount copies; it becomes the working directory
    kTmpfs,     // a tmpfs at `target`; `source`: its options
    kFolder,    // makes the folder `target`, which may exist
    kFile,      // makes the empty file `target`, which may exist
    kSymlink,   // makes `target` a link to `source`
    kBind,      // `source`, with what is mounted below it, at `target`
    kMove,      // the mount `source` moves to `target`
    kReadOnly,  // the mount `target` refuses writes; those below it do not
    kEnter,     // `target` becomes the root
    kDetach,    // the mount `target` goes, once nobody uses it
  };
  Kind kind;
  std::string target;
  std::string source;
  bool optional = false;  // a failure is no failure: one of this machine's own files, perhaps just removed
  bool operator==(const MountStep&) const = default;
};

// `mounts` with every `at` as this machine knows it, sorted: links are followed (/var/run/x is /run/x), but
// not below another volume, which hides them. kInvalid for a mount path "/".
Result<std::vector<Mount>> ResolveMounts(std::vector<Mount> mounts);

// The mount of `mounts`, sorted, that `path` lies in or is; the innermost. Null when none.
const Mount* FindMount(const std::vector<Mount>& mounts, const std::string& path);

// The steps, for a mount namespace of one's own, after which every mount of `mounts` (as ResolveMounts
// returns them) is in its place and everything else is where it was. A mount path that does not exist is
// not made on this machine: the deepest folder above it is replaced by a read-only one with the same
// entries and the missing one; if it is one for everyone's short-lived files (sticky, as /tmp), by one that
// belongs to the process. `staging` is an existing folder that the steps may mount on; nothing stays in it.
// Relative paths of the steps lie in it. The working directory afterwards is nobody's: set it.
// Reads folders; kInvalid for a mount path below a file, or below a folder that cannot be listed or has
// more entries than can be mounted.
Result<std::vector<MountStep>> PlanMounts(const std::vector<Mount>& mounts, const std::string& staging);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_NODE_MOUNT_PLAN_H_
