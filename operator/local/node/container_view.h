// What a container's process sees of this machine: its volumes, and the folders that the agent lends it.
#ifndef TRAINYARD_OPERATOR_LOCAL_NODE_CONTAINER_VIEW_H_
#define TRAINYARD_OPERATOR_LOCAL_NODE_CONTAINER_VIEW_H_

#include <optional>
#include <string>
#include <vector>

#include "operator/base/status.h"
#include "operator/local/node/mount_namespace.h"

namespace trainyard::local {

struct ContainerView {
  std::optional<MountNamespace> mounts;  // with the volumes at their mount paths
  std::optional<std::string> volumes;    // else what TRAINYARD_VOLUMES says: JSON {mount path: path here}
  std::string messages;                  // the folder that takes the termination message
  std::string programs;                  // the folder of Trainyard's own programs
  std::string directory;                 // the container's working directory; empty: any
};

// The folders that every container needs, wherever its volumes are.
struct LentFolders {
  std::string messages, programs, staging;  // canonical; staging: see PlanMounts
};

// `mounts` are the container's, `directory` is its workingDir, `namespaces` says whether TryMounts was ok.
// A lent folder that a volume hides is lent at another path. kInvalid as PlanMounts and ResolveMounts.
Result<ContainerView> MakeView(std::vector<Mount> mounts, const std::string& directory, const LentFolders& lent,
                               bool namespaces);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_NODE_CONTAINER_VIEW_H_
