#include "trainer/base/message.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <system_error>
#include <typeinfo>

#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/base/utf8.h"

namespace trainyard {
namespace {

// Of all that throws a plain system_error, std::thread alone meets this code.
bool FailedThread(const std::exception& error) {
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  return system && typeid(error) == typeid(std::system_error) &&
         system->code() == std::errc::resource_unavailable_try_again;
}

}  // namespace

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
  if (FailedThread(error))
    return std::string("cannot start a thread: ") + error.what() + "; the limits are " + kThreadLimits;
  constexpr size_t kLongest = 16384;
  const std::string text = error.what();
  const size_t end = std::min({text.size(), text.find("\nException raised from"), text.find("\nframe #")});
  return ValidUtf8(text.substr(0, std::min(end, kLongest))) + (end > kLongest ? " ..." : "");
}

}  // namespace trainyard
