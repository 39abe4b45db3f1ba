// Structured log lines on stderr: one JSON object a line in a cluster, short text on a terminal.
#ifndef TRAINYARD_OPERATOR_BASE_LOG_H_
#define TRAINYARD_OPERATOR_BASE_LOG_H_

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace trainyard {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

using LogFields = std::initializer_list<std::pair<std::string_view, std::string>>;

// Where lines go. Thread-safe; a line is written whole.
class Logger {
 public:
  enum class Form { kJson, kText };
  // `fd` stays the caller's.
  Logger(int fd, Form form, LogLevel least) : fd_(fd), form_(form), least_(least) {}

  void Log(LogLevel level, std::string_view message, LogFields fields = {}) const;
  void Debug(std::string_view message, LogFields fields = {}) const { Log(LogLevel::kDebug, message, fields); }
  void Info(std::string_view message, LogFields fields = {}) const { Log(LogLevel::kInfo, message, fields); }
  void Warning(std::string_view message, LogFields fields = {}) const { Log(LogLevel::kWarning, message, fields); }
  void Error(std::string_view message, LogFields fields = {}) const { Log(LogLevel::kError, message, fields); }

 private:
  int fd_;
  Form form_;
  LogLevel least_;
};

// `text` as the inside of a JSON string.
std::string JsonEscape(std::string_view text);

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_BASE_LOG_H_
