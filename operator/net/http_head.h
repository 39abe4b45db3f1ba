// The first part of an HTTP/1 answer: its code and its header fields.
// Source: RFC 9112, sections 2 to 6.
#ifndef TRAINYARD_OPERATOR_NET_HTTP_HEAD_H_
#define TRAINYARD_OPERATOR_NET_HTTP_HEAD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "operator/base/status.h"

namespace trainyard::net {

// Longer ones are refused.
inline constexpr size_t kMaxHeadBytes = 64 << 10;

struct HttpHead {
  int code = 0;
  bool keep_alive = false;                                  // the connection may carry another request
  bool chunked = false;                                     // Transfer-Encoding: chunked
  std::optional<uint64_t> length;                           // Content-Length
  std::vector<std::pair<std::string, std::string>> fields;  // names in lower case

  // The first field of this name (in lower case); empty when there is none.
  std::string_view Field(std::string_view name) const;
};

// The end of the head in `text`, behind its empty line; nothing when it is not whole yet.
std::optional<size_t> HeadEnd(std::string_view text);

// `text`: the head with its empty line. kInternal, saying what, when it is none, when it announces an
// encoding of the body (none was asked for), or two lengths.
Result<HttpHead> ParseHead(std::string_view text);

}  // namespace trainyard::net

#endif  // TRAINYARD_OPERATOR_NET_HTTP_HEAD_H_
