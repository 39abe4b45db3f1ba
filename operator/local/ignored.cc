#include "operator/local/ignored.h"

#include <set>

#include "operator/api/json.h"
#include "operator/base/json_access.h"

namespace trainyard::local {
namespace {

using Json = nlohmann::json;
using json::Field, json::List;

void CheckContainer(const Json& container, const std::string& path, std::set<std::string>& images,
                    std::vector<std::string>& ignored) {
  if (!Field(container, "image").is_null()) images.insert(api::Shown(container["image"]));
  if (!Field(container, "resources").is_null()) ignored.push_back(path + ".resources: there are no limits");
  for (const char* probe : {"livenessProbe", "readinessProbe", "startupProbe"}) {
    if (!Field(container, probe).is_null()) ignored.push_back(path + "." + probe + ": a process is ready when it runs");
  }
}

}  // namespace

std::vector<std::string> IgnoredFields(const Json& job) {
  std::vector<std::string> ignored;
  const Json& pod = Field(Field(Field(job, "spec"), "template"), "spec");
  std::set<std::string> images;
  for (const char* list : {"initContainers", "containers"}) {
    const Json& containers = List(pod, list);
    for (size_t i = 0; i < containers.size(); ++i)
      CheckContainer(containers[i], std::string("spec.template.spec.") + list + "[" + std::to_string(i) + "]", images,
                     ignored);
  }
  for (const std::string& image : images) ignored.push_back("image " + image + ": commands come from PATH");
  for (const char* field : {"nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "priorityClassName",
                            "serviceAccountName", "securityContext", "imagePullSecrets", "runtimeClassName"}) {
    if (!Field(pod, field).is_null())
      ignored.push_back(std::string("spec.template.spec.") + field + ": there is one node, this machine");
  }
  return ignored;
}

}  // namespace trainyard::local
