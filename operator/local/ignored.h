// What a cluster does with a job and one machine does not.
#ifndef TRAINYARD_OPERATOR_LOCAL_IGNORED_H_
#define TRAINYARD_OPERATOR_LOCAL_IGNORED_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace trainyard::local {

// A line for each field of `job` that `local` ignores, and why.
std::vector<std::string> IgnoredFields(const nlohmann::json& job);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_IGNORED_H_
