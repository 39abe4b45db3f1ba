#include "operator/local/node/container_view.h"

#include <nlohmann/json.hpp>

namespace trainyard::local {
namespace {

std::string VolumesText(const std::vector<Mount>& mounts) {
  nlohmann::json text = nlohmann::json::object();
  for (const Mount& mount : mounts) text[mount.at] = mount.source;
  return text.dump();
}

}  // namespace

Result<ContainerView> MakeView(std::vector<Mount> mounts, const std::string& directory, const LentFolders& lent,
                               bool namespaces) {
  ContainerView view{.mounts = std::nullopt,
                     .volumes = std::nullopt,
                     .messages = lent.messages,
                     .programs = lent.programs,
                     .directory = directory};
  if (!namespaces) {
    view.volumes = VolumesText(mounts);
    if (const Mount* mount = FindMount(mounts, directory))
      view.directory = mount->source + directory.substr(mount->at.size());
    return view;
  }
  const Result<std::vector<Mount>> volumes = ResolveMounts(mounts);
  if (!volumes.ok()) return volumes.status();
  if (FindMount(*volumes, lent.messages)) {
    view.messages = "/.trainyard/messages";
    mounts.push_back({.at = view.messages, .source = lent.messages, .read_only = false});
  }
  if (FindMount(*volumes, lent.programs)) {
    view.programs = "/.trainyard/bin";
    mounts.push_back({.at = view.programs, .source = lent.programs, .read_only = true});
  }
  const Result<std::vector<Mount>> all = ResolveMounts(std::move(mounts));
  if (!all.ok()) return all.status();
  Result<std::vector<MountStep>> steps = PlanMounts(*all, lent.staging);
  if (!steps.ok()) return steps.status();
  view.mounts.emplace(std::move(*steps));
  return view;
}

}  // namespace trainyard::local
