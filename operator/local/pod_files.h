// A pod's place on the disk: its volumes, its containers' logs and termination messages.
//
//   STATE/pods/<namespace>_<name>_<uid>/<container>.log, <container>.message, volumes/<volume>/
//   STATE/claims/<namespace>/<claim>/: what outlives pods
#ifndef TRAINYARD_OPERATOR_LOCAL_POD_FILES_H_
#define TRAINYARD_OPERATOR_LOCAL_POD_FILES_H_

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "operator/base/status.h"

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
  // {mount path: path here} of one container: what TRAINYARD_VOLUMES says. kInvalid for a mount of a
  // volume that the pod does not have.
  Result<std::map<std::string, std::string>> Mounts(const Json& pod, const Json& container) const;

  std::filesystem::path Log(const std::string& container) const { return root_ / (container + ".log"); }
  std::filesystem::path Message(const std::string& container) const { return root_ / (container + ".message"); }
  const std::filesystem::path& root() const { return root_; }

 private:
  Result<std::filesystem::path> VolumePath(const Json& volume) const;
  std::filesystem::path state_, root_;
  std::string ns_;
};

// The value of a downward-API field reference: metadata.{name,namespace,uid}, metadata.labels['x'],
// metadata.annotations['x'], spec.nodeName, status.podIP, ...; kInvalid for another.
Result<std::string> FieldReference(const Json& pod, const std::string& path);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_POD_FILES_H_
