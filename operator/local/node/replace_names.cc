#include "operator/local/node/replace_names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <string_view>

#include "operator/local/api/service_address.h"

namespace trainyard::local {
namespace {

constexpr std::string_view kHostMark = ".svc", kClusterDomain = ".cluster.local";

// Of a label of a DNS name (RFC 1123, 2.1).
bool OfLabel(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool OfWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

struct Place {
  size_t begin, end;
};
// The name in `text` that has the mark at `at`, and begins at `from` or later; nothing: there is none.
using Find = std::optional<Place> (*)(std::string_view text, size_t from, size_t at);

std::optional<Place> HostAround(std::string_view text, size_t from, size_t at) {
  size_t begin = at;
  for (int label = 3; label > 0; --label) {
    const size_t end = label == 3 ? at : begin - 1;
    begin = end;
    while (begin > from && OfLabel(text[begin - 1])) --begin;
    if (label == 1) {
      while (begin < end && text[begin] == '-') ++begin;  // an option's, not the name's
    }
    const bool follows = label == 1 || (begin > from && text[begin - 1] == '.');
    if (begin == end || text[begin] == '-' || !follows) return std::nullopt;
  }
  size_t end = at + kHostMark.size();
  if (text.substr(end).starts_with(kClusterDomain)) end += kClusterDomain.size();
  const std::string_view rest = text.substr(end);
  const bool longer = (!rest.empty() && OfLabel(rest[0])) || (rest.size() > 1 && rest[0] == '.' && OfLabel(rest[1]));
  return longer ? std::nullopt : std::optional(Place{begin, end});
}

std::optional<Place> AddressAt(std::string_view text, size_t, size_t at) {
  if (at > 0 && OfWord(text[at - 1])) return std::nullopt;
  size_t end = at + std::string_view(kServicePrefix).size();
  for (const bool last : {false, true}) {
    const size_t begin = end;
    while (end < text.size() && end - begin < 3 && IsDigit(text[end])) ++end;
    if (end == begin) return std::nullopt;
    if (last) break;
    if (end == text.size() || text[end] != '.') return std::nullopt;
    ++end;
  }
  const bool longer = end < text.size() && OfWord(text[end]);
  return longer ? std::nullopt : std::optional(Place{at, end});
}

std::string ReplaceEach(std::string& value, std::string_view mark, Find find,
                        const std::function<std::optional<std::string>(const std::string&)>& resolve) {
  std::string out;
  std::map<std::string, std::optional<std::string>> known;
  size_t from = 0;
  for (size_t at = value.find(mark); at != std::string::npos; at = value.find(mark, std::max(from, at + 1))) {
    const std::optional<Place> place = find(value, from, at);
    if (!place) continue;
    std::string name = value.substr(place->begin, place->end - place->begin);
    const auto [entry, first] = known.try_emplace(name);
    if (first) entry->second = resolve(name);
    if (!entry->second) return name;
    out.append(value, from, place->begin - from);
    out += *entry->second;
    from = place->end;
  }
  if (from == 0) return "";
  value = out.append(value, from);
  return "";
}

}  // namespace

std::string ReplaceNames(std::string& value, const Resolver& resolver) {
  const auto host = [&](const std::string& name) {
    std::array<std::string, 3> labels;  // pod, subdomain, namespace
    size_t begin = 0;
    for (std::string& label : labels) {
      const size_t end = name.find('.', begin);
      label = name.substr(begin, end - begin);
      begin = end + 1;
    }
    return resolver.host(labels[0], labels[1], labels[2]);
  };
  if (std::string missing = ReplaceEach(value, kHostMark, HostAround, host); !missing.empty()) return missing;
  return ReplaceEach(value, kServicePrefix, AddressAt, resolver.service);
}

}  // namespace trainyard::local
