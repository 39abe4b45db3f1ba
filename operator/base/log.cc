#include "operator/base/log.h"

#include <unistd.h>

#include <cstdio>

#include "operator/base/clock.h"

namespace trainyard {
namespace {

constexpr const char* kNames[] = {"debug", "info", "warning", "error"};

std::string JsonLine(LogLevel level, std::string_view message, LogFields fields) {
  std::string line = R"({"time":")" + FormatMicroTime(SystemClock().Now()) + R"(","level":")" +
                     kNames[static_cast<int>(level)] + R"(","msg":")" + JsonEscape(message) + '"';
  for (const auto& [key, value] : fields) line += ",\"" + JsonEscape(key) + "\":\"" + JsonEscape(value) + '"';
  return line + "}\n";
}

std::string TextLine(LogLevel level, std::string_view message, LogFields fields) {
  std::string line = std::string(kNames[static_cast<int>(level)]) + ": " + std::string(message);
  for (const auto& [key, value] : fields) line += "  " + std::string(key) + "=" + value;
  return line + "\n";
}

}  // namespace

std::string JsonEscape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", byte);
      out += code;
    } else {
      out += c;
    }
  }
  return out;
}

void Logger::Log(LogLevel level, std::string_view message, LogFields fields) const {
  if (level < least_) return;
  const std::string line = form_ == Form::kJson ? JsonLine(level, message, fields) : TextLine(level, message, fields);
  // One write: lines of several threads do not mix. There is nobody to tell when it fails.
  [[maybe_unused]] const ssize_t written = write(fd_, line.data(), line.size());
}

}  // namespace trainyard
