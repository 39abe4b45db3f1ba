#include "operator/local/node/pod_files.h"

#include <algorithm>

#include "operator/api/metadata.h"
#include "operator/base/file.h"
#include "operator/base/json_access.h"

namespace trainyard::local {
namespace {

namespace fs = std::filesystem;
using json::Text;

Status MakeFolder(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) fs::create_directories(path, error);  // a hostPath may be a file
  return error ? Status(Code::kInternal, path.string() + ": " + error.message()) : Status::Ok();
}

const Json& Volumes(const Json& pod) { return json::List(json::Field(pod, "spec"), "volumes"); }

// A map as the downward API writes it: key="value", a line each, sorted.
std::string Lines(const Json& map) {
  std::string text;
  for (const auto& [key, value] : map.items()) {
    text += (text.empty() ? "" : "\n") + key + "=" + value.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return text;
}

}  // namespace

bool StaysInside(const fs::path& relative) {
  const fs::path normal = relative.lexically_normal();
  return !normal.is_absolute() && (normal.empty() || *normal.begin() != "..");
}

PodFiles::PodFiles(fs::path state, const Json& pod) : state_(std::move(state)) {
  const Json metadata = json::Field(pod, "metadata");
  ns_ = Text(metadata, "namespace");
  root_ = state_ / "pods" / (ns_ + "_" + Text(metadata, "name") + "_" + Text(metadata, "uid"));
}

Status PodFiles::DropVolumes(const fs::path& root) {
  std::error_code error;
  fs::remove_all(root / "volumes", error);
  return error ? Status(Code::kInternal, (root / "volumes").string() + ": " + error.message()) : Status::Ok();
}

bool PodFiles::IsRoot(const fs::path& folder) {
  const std::string name = folder.filename().string();
  const size_t first = name.find('_'), second = name.find('_', first + 1);
  if (first == std::string::npos || second == std::string::npos || second + 1 == name.size()) return false;
  std::error_code error;
  return api::IsDnsLabel(name.substr(0, first)) && api::IsDnsSubdomain(name.substr(first + 1, second - first - 1)) &&
         fs::symlink_status(folder, error).type() == fs::file_type::directory &&
         fs::symlink_status(folder / "mounts", error).type() == fs::file_type::directory;
}

Result<fs::path> PodFiles::VolumePath(const Json& volume) const {
  const std::string name = Text(volume, "name");
  // Both become names of folders.
  if (!api::IsDnsLabel(name)) return Status(Code::kInvalid, "volume " + name + ": the name is no DNS label");
  // Without a source a volume is an emptyDir.
  if (volume.size() <= 1 || volume.contains("emptyDir") || volume.contains("downwardAPI"))
    return root_ / "volumes" / name;
  if (volume.contains("persistentVolumeClaim")) {
    const std::string claim = Text(volume["persistentVolumeClaim"], "claimName");
    if (!api::IsDnsSubdomain(claim))
      return Status(Code::kInvalid, "volume " + name + ": claimName " + claim + " is no DNS name");
    return state_ / "claims" / ns_ / claim;
  }
  if (volume.contains("hostPath")) return fs::path(Text(volume["hostPath"], "path"));
  std::string source = "none";
  for (const auto& [key, value] : volume.items()) {
    if (key != "name") source = key;
  }
  return Status(Code::kInvalid,
                "volume " + name + ": " + source +
                    " does not exist on one machine; allowed: emptyDir, persistentVolumeClaim, hostPath, downwardAPI");
}

Status PodFiles::Prepare(const Json& pod) const {
  for (const fs::path& folder : {root_, Staging()}) {
    if (Status status = MakeFolder(folder); !status.ok()) return status;
  }
  for (const Json& volume : Volumes(pod)) {
    const Result<fs::path> path = VolumePath(volume);
    if (!path.ok()) return path.status();
    if (Status status = MakeFolder(*path); !status.ok()) return status;
  }
  return Refresh(pod);
}

Status PodFiles::Refresh(const Json& pod) const {
  for (const Json& volume : Volumes(pod)) {
    if (!volume.contains("downwardAPI")) continue;
    const Result<fs::path> folder = VolumePath(volume);
    if (!folder.ok()) return folder.status();
    for (const Json& item : json::List(volume["downwardAPI"], "items")) {
      const std::string relative = Text(item, "path");
      const Result<std::string> value = FieldReference(pod, json::Text(json::Field(item, "fieldRef"), "fieldPath"));
      if (!value.ok()) return value.status();
      if (!StaysInside(relative))
        return Status(Code::kInvalid, "volume " + Text(volume, "name") + ": path " + relative + " leaves it");
      if (Status status = MakeFolder((*folder / relative).parent_path()); !status.ok()) return status;
      // The pod is right, the disk is not.
      if (Status status = WriteWhole(*folder / relative, *value, 0644, false); !status.ok())
        return Status(Code::kInternal, status.message());
    }
  }
  return Status::Ok();
}

Result<std::vector<Mount>> PodFiles::Mounts(const Json& pod, const Json& container) const {
  std::vector<Mount> mounts;
  for (const Json& mount : json::List(container, "volumeMounts")) {
    const std::string name = Text(mount, "name"), sub = Text(mount, "subPath");
    const std::string at = ("/" / fs::path(Text(mount, "mountPath")) / "").lexically_normal().parent_path().string();
    // The machine's own serves: it is as large as it gets.
    if (at == "/dev/shm") continue;
    bool found = false;
    for (const Json& volume : Volumes(pod)) {
      if (Text(volume, "name") != name) continue;
      const Result<fs::path> path = VolumePath(volume);
      if (!path.ok()) return path.status();
      if (!StaysInside(sub))
        return Status(Code::kInvalid, "volumeMounts " + name + ": subPath " + sub + " leaves the volume");
      const fs::path here = fs::absolute(sub.empty() ? *path : *path / sub).lexically_normal();
      if (Status status = MakeFolder(here); !status.ok()) return status;
      mounts.push_back({.at = at, .source = here.string(), .read_only = json::Flag(mount, "readOnly")});
      found = true;
    }
    if (!found) return Status(Code::kInvalid, "volumeMounts: the pod has no volume " + name);
  }
  std::sort(mounts.begin(), mounts.end(), [](const Mount& a, const Mount& b) { return a.at < b.at; });
  return mounts;
}

Result<std::string> FieldReference(const Json& pod, const std::string& path) {
  for (const char* map : {"labels", "annotations"}) {
    const std::string prefix = std::string("metadata.") + map + "['";
    if (!path.starts_with(prefix) || !path.ends_with("']")) continue;
    const std::string key = path.substr(prefix.size(), path.size() - prefix.size() - 2);
    return Text(json::Field(json::Field(pod, "metadata"), map), key.c_str());
  }
  if (path == "metadata.labels" || path == "metadata.annotations")
    return Lines(json::Field(json::Field(pod, "metadata"), path.substr(path.find('.') + 1).c_str()));
  const std::pair<const char*, const char*> known[] = {{"metadata.name", "/metadata/name"},
                                                       {"metadata.namespace", "/metadata/namespace"},
                                                       {"metadata.uid", "/metadata/uid"},
                                                       {"spec.nodeName", "/spec/nodeName"},
                                                       {"status.podIP", "/status/podIP"},
                                                       {"status.hostIP", "/status/hostIP"},
                                                       {"spec.serviceAccountName", "/spec/serviceAccountName"}};
  for (const auto& [name, pointer] : known) {
    if (path != name) continue;
    const Json::json_pointer at(pointer);
    return pod.contains(at) && pod[at].is_string() ? pod[at].get<std::string>() : "";
  }
  return Status(Code::kInvalid, "fieldRef " + path +
                                    ": unknown; allowed: metadata.name, .namespace, .uid, .labels, .labels['x'], "
                                    ".annotations, .annotations['x'], spec.nodeName, spec.serviceAccountName, "
                                    "status.podIP, status.hostIP");
}

}  // namespace trainyard::local
