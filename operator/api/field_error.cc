#include "operator/api/field_error.h"

#include <algorithm>
#include <numeric>

namespace trainyard::api {
namespace {

constexpr size_t kLongestName = 64;  // that someone may have meant to type

}  // namespace

std::string FieldError::ToString() const {
  switch (kind) {
    case Kind::kUnknown:
      return field + ": unknown field" + (allowed.empty() ? "" : "; " + allowed);
    case Kind::kRequired:
      return field + ": missing; allowed: " + allowed;
    case Kind::kInvalid:
      break;
  }
  return field + ": " + value + " is not allowed; allowed: " + allowed;
}

std::string Join(const std::vector<FieldError>& errors) {
  std::string text;
  for (size_t i = 0; i < std::min(errors.size(), kMostFieldErrors); ++i)
    text += (i > 0 ? "\n" : "") + errors[i].ToString();
  if (errors.size() > kMostFieldErrors) text += "\nand more";
  return text;
}

std::string Nearest(const std::string& name, const std::vector<std::string>& known) {
  if (name.size() > kLongestName) return "";
  std::string best;
  size_t best_distance = name.size() / 3 + 2;
  for (const std::string& candidate : known) {
    // Levenshtein, a row at a time.
    std::vector<size_t> row(candidate.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 0; i < name.size(); ++i) {
      size_t diagonal = row[0]++;
      for (size_t j = 0; j < candidate.size(); ++j) {
        const size_t change = diagonal + (std::tolower(name[i]) == std::tolower(candidate[j]) ? 0 : 1);
        diagonal = row[j + 1];
        row[j + 1] = std::min({change, row[j] + 1, row[j + 1] + 1});
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

}  // namespace trainyard::api
