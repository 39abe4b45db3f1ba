#include "trainer/checkpoint/sealed_json.h"

#include <algorithm>
#include <span>

#include "common/json.h"
#include "trainer/base/error.h"
#include "trainer/base/hash.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

std::string SealOf(std::string_view body) {
  return ",\n \"xxh3\": \"" + HexDigest(Xxh3(std::as_bytes(std::span(body)))) + "\"\n}\n";
}

}  // namespace

std::string Seal(const Json& root) {
  std::string body = root.dump(1, ' ', false, Json::error_handler_t::replace);
  body.resize(body.size() - 2);  // "\n}"
  return body + SealOf(body);
}

Json Unseal(std::string_view text, const std::string& origin) {
  static const size_t kSealSize = SealOf("").size();
  const size_t end = text.size() - std::min(text.size(), kSealSize);
  if (text.substr(end) != SealOf(text.substr(0, end)))
    throw StorageError(origin + ": damaged: its own checksum is missing or does not fit");
  Json root = ParseJson(text);
  if (!root.is_object()) throw StorageError(origin + ": not a JSON object");
  root.erase("xxh3");
  return root;
}

}  // namespace trainyard
