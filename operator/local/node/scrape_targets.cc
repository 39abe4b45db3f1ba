#include "operator/local/node/scrape_targets.h"

#include "operator/api/labels.h"
#include "operator/base/json_access.h"
#include "operator/reconcile/pod_record.h"

namespace trainyard::local {

using Json = nlohmann::json;

std::string ScrapeTargets(const std::vector<Json>& pods) {
  Json groups = Json::array();
  for (const Json& pod : pods) {
    const reconcile::PodRecord record = reconcile::PodFromJson(pod);
    if (record.ip.empty() || record.status_port == 0) continue;
    const Json& metadata = json::Field(pod, "metadata");
    groups.push_back({{"targets", Json::array({record.ip + ":" + std::to_string(record.status_port)})},
                      {"labels",
                       {{"namespace", json::Text(metadata, "namespace")},
                        {"pod", record.name},
                        {"trainyard_job", json::Text(json::Field(metadata, "labels"), api::kLabelJobName)},
                        {"attempt", std::to_string(record.attempt)},
                        {"worker", std::to_string(record.rank)}}}});
  }
  return groups.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace trainyard::local
