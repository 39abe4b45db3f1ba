// Where the workers of a node serve their metrics, for a Prometheus on the same machine.
#ifndef TRAINYARD_OPERATOR_LOCAL_NODE_SCRAPE_TARGETS_H_
#define TRAINYARD_OPERATOR_LOCAL_NODE_SCRAPE_TARGETS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace trainyard::local {

// A file of targets for Prometheus' file_sd_configs: each of `pods` that has an address and a trainer's port, with the
// labels that the chart's PodMonitor gives (namespace, pod, trainyard_job, attempt, worker).
// Source: prometheus.io/docs, file_sd_config.
std::string ScrapeTargets(const std::vector<nlohmann::json>& pods);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_NODE_SCRAPE_TARGETS_H_
