// Base64 (RFC 4648, section 4).
#ifndef TRAINYARD_OPERATOR_NET_BASE64_H_
#define TRAINYARD_OPERATOR_NET_BASE64_H_

#include <string>

#include "operator/base/status.h"

namespace trainyard::net {

// In one line.
std::string EncodeBase64(const std::string& text);
// Line breaks in it count as nothing. kInvalid for anything else than whole base64.
Result<std::string> DecodeBase64(std::string text);

}  // namespace trainyard::net

#endif  // TRAINYARD_OPERATOR_NET_BASE64_H_
