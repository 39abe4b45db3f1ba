// What a cluster does with a job and one machine does not: what it ignores, and what it cannot run.
#ifndef TRAINYARD_OPERATOR_LOCAL_NODE_LIMITS_H_
#define TRAINYARD_OPERATOR_LOCAL_NODE_LIMITS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace trainyard::local {

// A line for each field of the job's template that `local` ignores, and why: all that it does not know how to
// follow.
std::vector<std::string> IgnoredFields(const nlohmann::json& job);

// Why the job cannot run here, a line each; empty when it can. REQUIRES: api::CheckJob finds nothing wrong.
std::vector<std::string> JobObstacles(const nlohmann::json& job);

// Why `pod` cannot be processes of this machine, a line each; empty when it can. Touches nothing.
std::vector<std::string> Obstacles(const nlohmann::json& pod);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_NODE_LIMITS_H_
