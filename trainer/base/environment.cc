#include "trainer/base/environment.h"

#include <charconv>
#include <cstdlib>

#include "trainer/base/error.h"

namespace trainyard {

std::string EnvText(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::optional<int64_t> EnvInt(const char* name, int64_t low) {
  const std::string text = EnvText(name);
  if (text.empty()) return std::nullopt;
  int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size() || value < low) {
    throw ConfigError(std::string(name) + ": " + text +
                      " is not allowed; expected an integer >= " + std::to_string(low));
  }
  return value;
}

}  // namespace trainyard
