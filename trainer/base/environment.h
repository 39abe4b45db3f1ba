// Environment variables with types.
#ifndef TRAINYARD_TRAINER_BASE_ENVIRONMENT_H_
#define TRAINYARD_TRAINER_BASE_ENVIRONMENT_H_

#include <cstdint>
#include <optional>
#include <string>

namespace trainyard {

// Empty when unset.
std::string EnvText(const char* name);
// Nothing when unset or empty. Throws ConfigError naming variable and value when it is not an
// integer of at least `low`.
std::optional<int64_t> EnvInt(const char* name, int64_t low = 0);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_BASE_ENVIRONMENT_H_
