// Names of files that take another's place when they are whole (file.h, Replacement).
#ifndef TRAINYARD_TRAINER_BASE_TEMPORARY_NAME_H_
#define TRAINYARD_TRAINER_BASE_TEMPORARY_NAME_H_

#include <unistd.h>

#include <random>
#include <string>
#include <string_view>

#include "trainer/base/text.h"

namespace trainyard {

// "config.json" -> "config.json.tmp-<process>-<eight hex digits>": two hosts that share the directory may have
// processes of the same number.
inline std::string TemporaryName(const std::string& name) {
  return name + Format(".tmp-%d-%08x", getpid(), std::random_device()());
}

// Whether a name is one of those: what a killed process has left, or a live one writes.
inline bool IsTemporaryName(std::string_view name) {
  const size_t mark = name.rfind(".tmp-"), dash = name.rfind('-');
  if (mark == std::string_view::npos || mark == 0 || dash < mark + 6 || name.size() - dash != 9) return false;
  const std::string_view process = name.substr(mark + 5, dash - mark - 5), hex = name.substr(dash + 1);
  return process.find_first_not_of("0123456789") == std::string_view::npos &&
         hex.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_BASE_TEMPORARY_NAME_H_
