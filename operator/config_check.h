// What the trainer says of a job's spec.config: the operator does not know it, the trainer beside this program does.
#ifndef TRAINYARD_OPERATOR_CONFIG_CHECK_H_
#define TRAINYARD_OPERATOR_CONFIG_CHECK_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace trainyard {

struct ConfigVerdict {
  std::vector<std::string> problems;  // "spec.config: unknown key task.losss; did you mean task.loss?"; of those known
  std::string unchecked;  // why nobody looked; empty when somebody did, or when the job has no such configuration
};

// Asks `trainyard plan`, for a job whose container runs `trainyard launch` with spec.config; half a minute at most.
// REQUIRES: api::CheckJob finds nothing wrong.
ConfigVerdict CheckConfig(const nlohmann::json& job);

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_CONFIG_CHECK_H_
