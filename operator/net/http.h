// One request and its answer over a connection (HTTP/1.1).
// Source: RFC 9112. Nothing is compressed, redirected or kept.
#ifndef TRAINYARD_OPERATOR_NET_HTTP_H_
#define TRAINYARD_OPERATOR_NET_HTTP_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "operator/base/status.h"
#include "operator/net/connection.h"
#include "operator/net/http_head.h"

namespace trainyard::net {

struct HttpRequest {
  std::string method, target, host;
  std::vector<std::pair<std::string, std::string>> fields;
  std::string body;
};

// kUnavailable when the connection broke, kDeadline, kStopped; then what the server has done is unknown.
// kInvalid, and nothing was sent, for a field with a line break in it.
Status SendRequest(Connection& connection, const HttpRequest& request, const Wait& wait);

// Reads one answer: the head, then the body. `connection` must outlive it.
class HttpReader {
 public:
  HttpReader(Connection& connection, const Wait& wait) : connection_(connection), wait_(wait) {}

  // Answers 1xx are passed over.
  Result<HttpHead> Head();
  // What is read from now on has until then: the body of a stream may take longer than its head.
  void SetDeadline(Instant deadline) { wait_.deadline = deadline; }
  // Waits until something of the body has come. Whatever it returns Body() may be called, and meets the failure again,
  // unless it is a reset of a connection without TLS and a body without length or chunks. kDeadline: nothing has come.
  // REQUIRES: Head() was ok, Body() was not called.
  Status AwaitBody(Instant deadline);
  // Calls `on_data` for each piece as it comes, until the body's end or until it returns false (ok).
  // REQUIRES: Head() was ok.
  Status Body(const std::function<bool(const char* data, size_t size)>& on_data);

  // Whether the whole answer was read and the connection may carry another request.
  bool reusable() const { return whole_ && head_.keep_alive && buffer_.empty(); }

 private:
  using OnData = std::function<bool(const char*, size_t)>;
  Status Fill();  // reads more; kUnavailable at the stream's end
  Result<std::string> Line();
  // `length` bytes; `more` is false when on_data wants no more.
  Status Pieces(uint64_t length, const OnData& on_data, bool& more);
  Status Chunks(const OnData& on_data);
  Status UntilEnd(const OnData& on_data);

  Connection& connection_;
  Wait wait_;
  HttpHead head_;
  std::string buffer_;  // read, and not yet taken
  bool whole_ = false;
};

}  // namespace trainyard::net

#endif  // TRAINYARD_OPERATOR_NET_HTTP_H_
