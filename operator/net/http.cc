#include "operator/net/http.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace trainyard::net {
namespace {

// At once no more than one record of TLS comes (RFC 8446, 5.1).
constexpr size_t kPart = 16 << 10, kMaxLine = 8 << 10;

}  // namespace

Status SendRequest(Connection& connection, const HttpRequest& request, const Wait& wait) {
  std::string text = request.method + " " + request.target + " HTTP/1.1\r\nHost: " + request.host + "\r\n";
  for (const auto& [name, value] : request.fields) {
    if (value.find_first_of("\r\n") != std::string::npos)
      return Status(Code::kInvalid, name + ": a line break is not allowed");
    text += name + ": " + value + "\r\n";
  }
  const bool has_body = !request.body.empty() || request.method == "POST";
  if (has_body) text += "Content-Length: " + std::to_string(request.body.size()) + "\r\n";
  return connection.Write(text + "\r\n" + request.body, wait);
}

Status HttpReader::Fill() {
  const size_t before = buffer_.size();
  buffer_.resize(before + kPart);
  const Result<size_t> got = connection_.Read(buffer_.data() + before, kPart, wait_);
  buffer_.resize(before + (got.ok() ? *got : 0));
  if (!got.ok()) return got.status();
  if (*got == 0) return Status(Code::kUnavailable, "the server closed the connection");
  return Status::Ok();
}

Result<HttpHead> HttpReader::Head() {
  for (;;) {
    std::optional<size_t> end = HeadEnd(buffer_);
    while (!end) {
      if (buffer_.size() > kMaxHeadBytes) return Status(Code::kInternal, "the answer's head is longer than 64 KiB");
      if (Status status = Fill(); !status.ok()) return status;
      end = HeadEnd(buffer_);
    }
    Result<HttpHead> head = ParseHead(std::string_view(buffer_).substr(0, *end));
    if (!head.ok()) return head.status();
    buffer_.erase(0, *end);
    if (head->code / 100 == 1) continue;
    head_ = *head;
    return head;
  }
}

Status HttpReader::AwaitBody(Instant deadline) {
  if (!buffer_.empty()) return Status::Ok();
  const Instant whole = std::exchange(wait_.deadline, std::min(deadline, wait_.deadline));
  Status status = Fill();
  wait_.deadline = whole;
  return status;
}

Status HttpReader::Body(const OnData& on_data) {
  if (head_.code == 204 || head_.code == 304) {
    whole_ = true;
    return Status::Ok();
  }
  if (head_.chunked) return Chunks(on_data);
  if (!head_.length) return UntilEnd(on_data);
  bool more = true;
  Status status = Pieces(*head_.length, on_data, more);
  whole_ = status.ok() && more;
  return status;
}

Status HttpReader::Pieces(uint64_t length, const OnData& on_data, bool& more) {
  while (length > 0 && more) {
    if (buffer_.empty()) {
      if (Status status = Fill(); !status.ok()) return status;
    }
    const size_t piece = static_cast<size_t>(std::min<uint64_t>(length, buffer_.size()));
    more = on_data(buffer_.data(), piece);
    buffer_.erase(0, piece);
    length -= piece;
  }
  return Status::Ok();
}

Result<std::string> HttpReader::Line() {
  size_t end = buffer_.find("\r\n");
  while (end == std::string::npos) {
    if (buffer_.size() > kMaxLine) return Status(Code::kInternal, "the answer is no HTTP: a line without an end");
    if (Status status = Fill(); !status.ok()) return status;
    end = buffer_.find("\r\n");
  }
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 2);
  return line;
}

Status HttpReader::Chunks(const OnData& on_data) {
  for (bool more = true; more;) {
    const Result<std::string> line = Line();
    if (!line.ok()) return line.status();
    uint64_t length = 0;
    const auto [end, error] = std::from_chars(line->data(), line->data() + line->size(), length, 16);
    if (error != std::errc() || (end != line->data() + line->size() && *end != ';' && *end != ' '))
      return Status(Code::kInternal, "the answer is no HTTP: the length of a chunk");
    if (length == 0) break;
    if (Status status = Pieces(length, on_data, more); !status.ok()) return status;
    if (!more) return Status::Ok();
    const Result<std::string> empty = Line();
    if (!empty.ok()) return empty.status();
    if (!empty->empty()) return Status(Code::kInternal, "the answer is no HTTP: a chunk longer than its length");
  }
  for (;;) {  // fields behind the body
    const Result<std::string> line = Line();
    if (!line.ok()) return line.status();
    if (line->empty()) break;
  }
  whole_ = true;
  return Status::Ok();
}

Status HttpReader::UntilEnd(const OnData& on_data) {
  head_.keep_alive = false;
  for (;;) {
    if (!buffer_.empty() && !on_data(buffer_.data(), buffer_.size())) return Status::Ok();
    buffer_.resize(kPart);
    const Result<size_t> got = connection_.Read(buffer_.data(), kPart, wait_);
    buffer_.resize(got.ok() ? *got : 0);
    if (!got.ok()) return got.status();
    if (*got == 0) return Status::Ok();
  }
}

}  // namespace trainyard::net
