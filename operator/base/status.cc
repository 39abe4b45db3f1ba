#include "operator/base/status.h"

namespace trainyard {

const char* CodeName(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInvalid:
      return "Invalid";
    case Code::kUnauthorized:
      return "Unauthorized";
    case Code::kForbidden:
      return "Forbidden";
    case Code::kNotFound:
      return "NotFound";
    case Code::kConflict:
      return "Conflict";
    case Code::kAlreadyExists:
      return "AlreadyExists";
    case Code::kGone:
      return "Gone";
    case Code::kAhead:
      return "TooLargeResourceVersion";
    case Code::kThrottled:
      return "TooManyRequests";
    case Code::kUnavailable:
      return "Unavailable";
    case Code::kDeadline:
      return "Timeout";
    case Code::kStopped:
      return "Stopped";
    case Code::kInternal:
      return "InternalError";
  }
  return "?";
}

Status Status::With(const std::string& context) const {
  if (ok()) return *this;
  Status status = *this;
  status.message_ = context + ": " + message_;
  return status;
}

std::string Status::ToString() const { return ok() ? "ok" : std::string(CodeName(code_)) + ": " + message_; }

}  // namespace trainyard
