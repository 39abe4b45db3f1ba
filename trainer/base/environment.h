// Environment variables with types.
#ifndef TRAINYARD_TRAINER_BASE_ENVIRONMENT_H_
#define TRAINYARD_TRAINER_BASE_ENVIRONMENT_H_

#include <cstdint>
#include <optional>
#include <string>

namespace trainyard {

// Empty when unset.
std::string EnvText(const char* name);
// Nothing when unset or empty. Throws ConfigError naming variable, value and what is allowed when it
// is not, as a whole, an integer from `low` to `high`.
std::optional<int> EnvInt(const char* name, int low, int high);
std::optional<int64_t> EnvInt64(const char* name, int64_t low, int64_t high);
// The same for a TCP port that others can be told of: 1 to 65535.
std::optional<int> EnvPort(const char* name);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_BASE_ENVIRONMENT_H_
