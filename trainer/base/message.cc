#include "trainer/base/message.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/base/utf8.h"

namespace trainyard {

std::optional<std::string> FailedAllocation(const std::exception& error) {
  if (dynamic_cast<const Error*>(&error)) return {};  // What it quotes has befallen somebody else.
  const std::string text = error.what(), amount = "tried to allocate ";
  const bool ours = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  if (!ours && text.find("DefaultCPUAllocator") == std::string::npos) return {};
  const size_t at = text.find(amount);
  const double bytes = at == std::string::npos ? 0 : std::strtod(text.c_str() + at + amount.size(), nullptr);
  return "out of memory" + (bytes > 0 ? ": " + HumanBytes(bytes) + " more could not be had" : "");
}

std::string MessageOf(const std::exception& error) {
  if (const auto text = FailedAllocation(error)) return *text;
  constexpr size_t kLongest = 16384;
  const std::string text = error.what();
  const size_t end = std::min({text.size(), text.find("\nException raised from"), text.find("\nframe #")});
  return ValidUtf8(text.substr(0, std::min(end, kLongest))) + (end > kLongest ? " ..." : "");
}

}  // namespace trainyard
