#include "operator/net/http_head.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace trainyard::net {
namespace {

std::string Lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

// What a peer has sent, for people: any byte may be in it.
std::string Printable(const std::string& value) {
  std::string text = value.substr(0, 64);
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c > 0x7e; }, '?');
  return text;
}

Status Wrong(const std::string& what) { return Status(Code::kInternal, "the answer is no HTTP: " + what); }

template <class Number>
bool Digits(std::string_view text, Number& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

// "HTTP/1.1 200 OK"
Status ParseFirstLine(std::string_view line, HttpHead& head) {
  if (!line.starts_with("HTTP/1.") || line.size() < 12 || line[8] != ' ' || (line.size() > 12 && line[12] != ' '))
    return Wrong("its first line");
  head.keep_alive = line[7] != '0';
  if (!Digits(line.substr(9, 3), head.code) || head.code < 100) return Wrong("its code");
  return Status::Ok();
}

Status Interpret(const std::string& name, const std::string& value, HttpHead& head) {
  if (name == "content-length") {
    uint64_t length = 0;
    if (!Digits(std::string_view(value), length)) return Wrong("Content-Length " + Printable(value));
    if (head.length && *head.length != length) return Wrong("two different lengths");
    head.length = length;
  } else if (name == "transfer-encoding") {
    if (Lower(value) != "chunked") return Wrong("Transfer-Encoding " + Printable(value));
    head.chunked = true;
  } else if (name == "content-encoding" && Lower(value) != "identity") {
    return Wrong("Content-Encoding " + Printable(value) + ", which was not asked for");
  } else if (name == "connection") {
    const std::string options = Lower(value);
    if (options.find("close") != std::string::npos) head.keep_alive = false;
    if (options.find("keep-alive") != std::string::npos) head.keep_alive = true;
  }
  return Status::Ok();
}

}  // namespace

std::string_view HttpHead::Field(std::string_view name) const {
  for (const auto& [key, value] : fields) {
    if (key == name) return value;
  }
  return {};
}

std::optional<size_t> HeadEnd(std::string_view text) {
  const size_t end = text.find("\r\n\r\n");
  return end == std::string_view::npos ? std::nullopt : std::optional(end + 4);
}

Result<HttpHead> ParseHead(std::string_view text) {
  HttpHead head;
  bool first = true;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = Trimmed(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (first) {
      if (Status status = ParseFirstLine(line, head); !status.ok()) return status;
      first = false;
      continue;
    }
    if (line.empty()) continue;
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || colon == 0) return Wrong("a header field without a name");
    std::string name = Lower(line.substr(0, colon)), value(Trimmed(line.substr(colon + 1)));
    if (Status status = Interpret(name, value, head); !status.ok()) return status;
    head.fields.emplace_back(std::move(name), std::move(value));
  }
  if (head.chunked) head.length.reset();
  return head;
}

}  // namespace trainyard::net
