#include "operator/local/api/protobuf_review.h"

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>

#include "common/json.h"

namespace trainyard::local {
namespace {

using Json = nlohmann::json;

// Takes a base-128 number from the front; nothing when it is cut or too long.
std::optional<uint64_t> TakeVarint(std::string_view& bytes) {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

// The bytes of the last field of this number that has a length; nothing when there is none, or the message is damaged.
std::optional<std::string_view> Field(std::string_view message, uint64_t number) {
  std::optional<std::string_view> found;
  while (!message.empty()) {
    const std::optional<uint64_t> tag = TakeVarint(message);
    const std::optional<uint64_t> value = tag ? TakeVarint(message) : std::nullopt;
    if (!value) return std::nullopt;
    if ((*tag & 7) == 0) continue;  // a number
    if ((*tag & 7) != 2 || *value > message.size()) return std::nullopt;
    if (*tag >> 3 == number) found = message.substr(0, *value);
    message.remove_prefix(*value);
  }
  return found;
}

// The texts of a message by their names.
Json Texts(std::string_view message, std::initializer_list<std::pair<uint64_t, const char*>> names) {
  Json object = Json::object();
  for (const auto& [number, name] : names) {
    const std::optional<std::string_view> text = Field(message, number);
    if (text && !text->empty()) object[name] = std::string(*text);
  }
  return object;
}

Json AccessSpec(std::string_view spec) {
  if (const auto resource = Field(spec, 1))
    return {{"resourceAttributes", Texts(*resource, {{1, "namespace"},
                                                     {2, "verb"},
                                                     {3, "group"},
                                                     {4, "version"},
                                                     {5, "resource"},
                                                     {6, "subresource"},
                                                     {7, "name"}})}};
  return {{"nonResourceAttributes", Texts(Field(spec, 2).value_or(""), {{1, "path"}, {2, "verb"}})}};
}

}  // namespace

std::optional<Json> ReviewFromProtobuf(std::string_view body) {
  constexpr std::string_view kMagic("k8s\0", 4);
  if (!body.starts_with(kMagic)) return std::nullopt;
  body.remove_prefix(kMagic.size());
  const std::optional<std::string_view> type = Field(body, 1), raw = Field(body, 2);
  if (!type || !raw) return std::nullopt;
  Json review = Texts(*type, {{1, "apiVersion"}, {2, "kind"}});
  const std::string kind = review.value("kind", "");
  const std::string_view spec = Field(*raw, 2).value_or("");
  if (kind == "SelfSubjectAccessReview") {
    review["spec"] = AccessSpec(spec);
  } else if (kind == "SelfSubjectRulesReview") {
    review["spec"] = Texts(spec, {{1, "namespace"}});
  } else {
    return std::nullopt;
  }
  // What is no text, JSON cannot carry.
  return ParseJson(review.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace trainyard::local
