// A pod's place on the disk: its volumes, its containers' logs and termination messages.
//
//   STATE/pods/<namespace>_<name>_<uid>/<container>.log, <container>.message, volumes/<volume>/,
//     mounts/ (empty: a place to mount on)
//   STATE/claims/<namespace>/<claim>/: what outlives pods
#ifndef TRAINYARD_OPERATOR_LOCAL_NODE_POD_FILES_H_
#define TRAINYARD_OPERATOR_LOCAL_NODE_POD_FILES_H_

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "operator/base/status.h"
#include "operator/local/node/mount_plan.h"

namespace trainyard::local {

using Json = nlohmann::json;

class PodFiles {
 public:
  PodFiles(std::filesystem::path state, const Json& pod);

  // Makes the folders and the downward-API files. kInvalid for a volume source that one machine does
  // not have (configMap, secret, csi, ...); kInternal when the disk refuses.
  Status Prepare(const Json& pod) const;
  // Writes the downward-API files again, for annotations and labels that changed.
  Status Refresh(const Json& pod) const;
  // The volumes of one container, sorted by mount path; makes the folders. kInvalid for a mount of a
  // volume that the pod does not have.
  Result<std::vector<Mount>> Mounts(const Json& pod, const Json& container) const;

  // The pod is gone: so are its emptyDirs. Logs and messages stay. Follows no link. `root`: root() of one.
  static Status DropVolumes(const std::filesystem::path& root);
  // Whether a folder is root() of a pod that Prepare was called for. A state folder may be one that held other things.
  static bool IsRoot(const std::filesystem::path& folder);

  std::filesystem::path Log(const std::string& container) const { return root_ / (container + ".log"); }
  static std::string MessageName(const std::string& container) { return container + ".message"; }
  std::filesystem::path Message(const std::string& container) const { return root_ / MessageName(container); }
  // NAME=value of a variable that every process of this container carries, and no other: the log is nobody else's.
  std::string Mark(const std::string& container) const { return "TRAINYARD_LOG=" + Log(container).string(); }
  // Where a process may mount what it alone sees.
  std::filesystem::path Staging() const { return root_ / "mounts"; }
  const std::filesystem::path& root() const { return root_; }
  // Where a volume of the pod lies; kInvalid for a source that one machine does not have, and for a name that
  // would lead elsewhere. Touches nothing.
  Result<std::filesystem::path> VolumePath(const Json& volume) const;

 private:
  std::filesystem::path state_, root_;
  std::string ns_;
};

// Whether a path in a volume stays in it.
bool StaysInside(const std::filesystem::path& relative);

// The value of a downward-API field reference: metadata.{name,namespace,uid}, metadata.labels['x'],
// metadata.annotations['x'], spec.nodeName, status.podIP, ...; kInvalid for another.
Result<std::string> FieldReference(const Json& pod, const std::string& path);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_NODE_POD_FILES_H_
