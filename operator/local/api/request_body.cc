#include "operator/local/api/request_body.h"

#include <openssl/ssl.h>
#include <poll.h>
#include <strings.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>

namespace trainyard::local {
namespace {

// As they come, for a body of kBodyBytes: in chunks a few bytes long at worst.
constexpr size_t kBodyOnTheWire = 8 * kBodyBytes;
constexpr std::chrono::milliseconds kLinger{1000};

// The connection of this thread.
struct Incoming {
  SSL* tls = nullptr;
  size_t left = 0;  // bytes that may still come
};
thread_local Incoming incoming;

// The only place where the bytes pass before the library keeps them: it reads a line of any length, and any number.
void CountRecord(int written, int, int type, const void* data, size_t size, SSL* tls, void*) {
  if (written != 0 || type != SSL3_RT_HEADER || size < SSL3_RT_HEADER_LENGTH) return;
  const auto* header = static_cast<const unsigned char*>(data);
  const size_t length = static_cast<size_t>(header[3]) << 8 | header[4];
  if (incoming.tls != tls) incoming = {tls, kHeadBytes};
  // As if the client had ended: the socket itself would go on giving as long as more comes.
  if (length > incoming.left) SSL_set_shutdown(tls, SSL_get_shutdown(tls) | SSL_RECEIVED_SHUTDOWN);
  incoming.left -= std::min(length, incoming.left);
}

// To close while bytes lie unread would reset the connection, and the client might never see the answer.
void Linger() {
  if (!incoming.tls) return;
  const int file = SSL_get_fd(incoming.tls);
  SSL_shutdown(incoming.tls);
  shutdown(file, SHUT_WR);
  const auto end = std::chrono::steady_clock::now() + kLinger;
  std::array<char, 1 << 14> ignored;
  for (size_t bytes = 0; bytes < kBodyBytes;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    pollfd waits{.fd = file, .events = POLLIN, .revents = 0};
    if (left <= 0 || poll(&waits, 1, static_cast<int>(left)) <= 0) return;
    const ssize_t got = recv(file, ignored.data(), ignored.size(), MSG_DONTWAIT);
    if (got <= 0) return;
    bytes += static_cast<size_t>(got);
  }
}

ApiResult TooLarge() {
  return Failure(413, "RequestEntityTooLarge",
                 "Request entity too large: limit is " + std::to_string(kBodyBytes) + " bytes");
}

bool IsChunked(const httplib::Request& request) {
  return strcasecmp(request.get_header_value("Transfer-Encoding").c_str(), "chunked") == 0;
}

}  // namespace

void LimitHeads(SSL_CTX* context) { SSL_CTX_set_msg_callback(context, CountRecord); }

void EndOfHead() { incoming.left = kHeadBytes; }

int IncomingSocket() { return incoming.tls ? SSL_get_fd(incoming.tls) : -1; }

ApiResult CheckHead(const httplib::Request& request) {
  const std::array methods = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"};
  if (std::find(methods.begin(), methods.end(), request.method) == methods.end()) return MethodNotAllowed();
  if (request.has_header("Transfer-Encoding") && !IsChunked(request))
    return Failure(501, "NotImplemented", "a body comes whole or in chunks here");
  if (request.is_multipart_form_data()) return UnsupportedMediaType("application/json, application/yaml");
  if (!request.has_header("Content-Length")) return {};
  const std::string length = request.get_header_value("Content-Length");
  uint64_t bytes = 0;
  const auto [end, error] = std::from_chars(length.data(), length.data() + length.size(), bytes);
  if (end != length.data() + length.size() || error == std::errc::invalid_argument)
    return BadRequest("Content-Length: " + length + " is no number of bytes");
  return error == std::errc() && bytes <= kBodyBytes ? ApiResult{} : TooLarge();
}

ApiResult ReadBody(const httplib::Request& request, const httplib::ContentReader& read, std::string& body) {
  // Where neither says that there is one, the library would wait for the end of the connection.
  if (!request.has_header("Content-Length") && !IsChunked(request)) return {};
  bool fits = true;
  incoming.left = kBodyOnTheWire;
  const bool whole = read([&](const char* data, size_t size) {
    fits = body.size() + size <= kBodyBytes;
    if (fits) body.append(data, size);
    return fits;
  });
  EndOfHead();
  if (!fits) return TooLarge();
  return whole ? ApiResult{} : BadRequest("the body cannot be read");
}

void AnswerAndClose(const ApiResult& result, httplib::Response& response) {
  response.status = result.http;
  response.set_header("Connection", "close");
  const std::string text = result.body.dump(-1, ' ', false, Json::error_handler_t::replace);
  // The library closes after a body that its source gives up; this one does so when it has given it all.
  response.set_content_provider(text.size(), "application/json",
                                [text](size_t offset, size_t size, httplib::DataSink& sink) {
                                  if (offset < text.size())
                                    sink.write(text.data() + offset, std::min(size, text.size() - offset));
                                  Linger();
                                  return false;
                                });
}

}  // namespace trainyard::local
