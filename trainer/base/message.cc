#include "trainer/base/message.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <string_view>
#include <system_error>
#include <typeinfo>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/memory.h"
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

// "268435456 bytes", "2.50 GiB".
double BytesOf(const char* text) {
  char* unit = nullptr;
  const double number = std::strtod(text, &unit);
  const std::string_view rest(unit);
  for (const auto& [name, bytes] :
       {std::pair(" KiB", 1024.0), std::pair(" MiB", 1048576.0), std::pair(" GiB", 1073741824.0)}) {
    if (rest.starts_with(name)) return number * bytes;
  }
  return number;
}

}  // namespace

std::optional<std::string> FailedAllocation(const std::exception& error) {
  if (dynamic_cast<const Error*>(&error)) return {};                    // What it quotes has befallen somebody else.
  const std::string text = error.what(), amount = "ried to allocate ";  // "tried", or as a sentence of its own
  const bool ours = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  const bool devices = text.starts_with("CUDA out of memory");
  const std::string limit = devices ? "" : ProcessMemoryLimit();
  // oneDNN's words for all that it met while it made room and wrote a kernel.
  const bool kernel = !limit.empty() && text == "could not create a primitive";
  if (!ours && !devices && !kernel && text.find("DefaultCPUAllocator") == std::string::npos) return {};
  const size_t at = text.find(amount);
  const double bytes = at == std::string::npos ? 0 : BytesOf(text.c_str() + at + amount.size());
  return std::string(devices ? "out of the GPU's memory" : "out of memory") +
         (bytes > 0 ? ": " + HumanBytes(bytes) + " more could not be had" : "") +
         (limit.empty() ? "" : " (" + limit + ")");
}

ExitCode CodeOf(const std::exception& error) {
  if (const auto* typed = dynamic_cast<const Error*>(&error)) return typed->code();
  if (FailedAllocation(error)) return ExitCode::kOutOfMemory;
  if (dynamic_cast<const fs::filesystem_error*>(&error)) return ExitCode::kStorage;
  return ExitCode::kInternal;
}

bool IsOfThreads(const std::string& message) {
  return message.ends_with(std::make_error_code(std::errc::resource_unavailable_try_again).message());
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
