// The outcome of an operation, as a value: no exception crosses a function of the operator.
#ifndef TRAINYARD_OPERATOR_BASE_STATUS_H_
#define TRAINYARD_OPERATOR_BASE_STATUS_H_

#include <cassert>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace trainyard {

enum class Code {
  kOk,
  kInvalid,        // the request or the object is wrong and will stay so (400, 415, 422)
  kUnauthorized,   // 401
  kForbidden,      // 403: no right, or a quota
  kNotFound,       // 404
  kConflict,       // 409: someone else wrote in between
  kAlreadyExists,  // 409 on create
  kGone,           // 410: that resource version is no longer served
  kAhead,          // 504: the server does not reach that resource version; it may have been restored from a backup
  kThrottled,      // 429
  kUnavailable,    // nobody answered, or 5xx: try again
  kDeadline,       // a deadline of ours passed
  kStopped,        // we were asked to stop, and did not wait for the end
  kInternal,       // a bug, or a broken machine
};

// "NotFound", "Conflict", ...
const char* CodeName(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) { assert(code != Code::kOk); }
  static Status Ok() { return {}; }

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  bool Is(Code code) const { return code_ == code; }
  const std::string& message() const { return message_; }
  // How long the server asked to be left alone; nothing when it did not.
  std::optional<double> retry_after_seconds() const { return retry_after_seconds_; }
  Status& set_retry_after_seconds(double seconds) {
    retry_after_seconds_ = seconds;
    return *this;
  }

  // The same with "context: " in front of the message; ok stays ok.
  Status With(const std::string& context) const;
  // "Conflict: pods default/a-1-0: the object was changed", or "ok".
  std::string ToString() const;

 private:
  Code code_ = Code::kOk;
  std::string message_;
  std::optional<double> retry_after_seconds_;
};

// A value, or why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}
  Result(Status status) : state_(std::move(status)) { assert(!std::get<Status>(state_).ok()); }

  bool ok() const { return std::holds_alternative<T>(state_); }
  Status status() const { return ok() ? Status::Ok() : std::get<Status>(state_); }
  // REQUIRES: ok()
  T& value() & { return std::get<T>(state_); }
  const T& value() const& { return std::get<T>(state_); }
  T&& value() && { return std::get<T>(std::move(state_)); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }

 private:
  std::variant<Status, T> state_;
};

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_BASE_STATUS_H_
