#include "trainer/checkpoint/sealed_json.h"

#include <span>

#include "common/json.h"
#include "trainer/base/error.h"
#include "trainer/base/hash.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

std::string SealOf(const std::string& body) {
  return ",\n \"xxh3\": \"" + HexDigest(Xxh3(std::as_bytes(std::span(body)))) + "\"\n}\n";
}

}  // namespace

std::string Seal(const Json& root) {
  std::string body = root.dump(1, ' ', false, Json::error_handler_t::replace);
  body.resize(body.size() - 2);  // "\n}"
  return body + SealOf(body);
}

Json Unseal(const std::string& text, const std::string& origin) {
  static const size_t kSealSize = SealOf("").size();
  const std::string body = text.substr(0, text.size() - std::min(text.size(), kSealSize));
  if (text != body + SealOf(body))
    throw StorageError(origin + ": damaged: its own checksum is missing or does not fit");
  Json root = ParseJson(text);
  if (!root.is_object()) throw StorageError(origin + ": not a JSON object");
  root.erase("xxh3");
  return root;
}

}  // namespace trainyard
