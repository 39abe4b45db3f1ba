#include "trainer/base/environment.h"

#include <charconv>
#include <cstdlib>

#include "trainer/base/error.h"

namespace trainyard {

std::string EnvText(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::optional<int64_t> EnvInt64(const char* name, int64_t low, int64_t high) {
  const std::string text = EnvText(name);
  if (text.empty()) return std::nullopt;
  int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size() || value < low || value > high) {
    throw ConfigError(std::string(name) + ": " + text + " is not allowed; expected an integer from " +
                      std::to_string(low) + " to " + std::to_string(high));
  }
  return value;
}

std::optional<int> EnvInt(const char* name, int low, int high) {
  const std::optional<int64_t> value = EnvInt64(name, low, high);
  return value ? std::optional(static_cast<int>(*value)) : std::nullopt;
}

std::optional<int> EnvPort(const char* name) { return EnvInt(name, 1, 65535); }

}  // namespace trainyard
