#include "operator/api/quantity.h"

#include <charconv>
#include <cmath>
#include <map>
#include <string>
#include <string_view>

namespace trainyard::api {
namespace {

// What the suffix multiplies by; nothing when there is no such suffix.
std::optional<long double> Scale(std::string_view suffix) {
  static const std::map<std::string_view, long double> scales = {{"n", 1},
                                                                 {"u", 1e3L},
                                                                 {"m", 1e6L},
                                                                 {"", 1e9L},
                                                                 {"k", 1e12L},
                                                                 {"M", 1e15L},
                                                                 {"G", 1e18L},
                                                                 {"T", 1e21L},
                                                                 {"P", 1e24L},
                                                                 {"E", 1e27L},
                                                                 {"Ki", kOne * 0x1p10L},
                                                                 {"Mi", kOne * 0x1p20L},
                                                                 {"Gi", kOne * 0x1p30L},
                                                                 {"Ti", kOne * 0x1p40L},
                                                                 {"Pi", kOne * 0x1p50L},
                                                                 {"Ei", kOne * 0x1p60L}};
  if (const auto found = scales.find(suffix); found != scales.end()) return found->second;
  if (suffix.size() < 2 || (suffix[0] != 'e' && suffix[0] != 'E')) return std::nullopt;
  suffix.remove_prefix(suffix[1] == '+' ? 2 : 1);
  int exponent = 0;
  const auto [end, error] = std::from_chars(suffix.data(), suffix.data() + suffix.size(), exponent);
  if (error != std::errc() || end != suffix.data() + suffix.size()) return std::nullopt;
  return kOne * std::pow(10.0L, exponent);
}

}  // namespace

std::optional<long double> Quantity(const nlohmann::json& value) {
  if (value.is_number()) return value.get<long double>() * kOne;
  if (!value.is_string()) return std::nullopt;
  std::string_view text = value.get_ref<const std::string&>();
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  long double digits = 0, parts = 1;  // the number is digits / parts
  size_t i = 0, count = 0;
  bool point = false;
  for (; i < text.size() && ((text[i] >= '0' && text[i] <= '9') || (text[i] == '.' && !point)); ++i) {
    if (text[i] == '.') {
      point = true;
      continue;
    }
    ++count;
    digits = digits * 10 + (text[i] - '0');
    if (point) parts *= 10;
  }
  const std::optional<long double> scale = Scale(text.substr(i));
  if (count == 0 || !scale) return std::nullopt;
  return (negative ? -digits : digits) * *scale / parts;
}

}  // namespace trainyard::api
