#include "operator/reconcile/index_set.h"

#include <charconv>
#include <string_view>

namespace trainyard::reconcile {
namespace {

// -1 for anything that is no index.
int64_t Index(std::string_view text) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : -1;
}

}  // namespace

std::string FormatIndexSet(const IndexSet& indices) {
  std::string text;
  for (auto first = indices.begin(); first != indices.end();) {
    auto last = first, next = std::next(first);
    while (next != indices.end() && *next == *last + 1) last = next++;
    text += (text.empty() ? "" : ",") + std::to_string(*first);
    if (last != first) text += "-" + std::to_string(*last);
    first = next;
  }
  return text;
}

IndexSet ParseIndexSet(const std::string& text, int64_t limit) {
  IndexSet indices;
  int64_t next = 0;  // a part that goes back is none that was written, and would be counted again and again
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = std::string_view(text).substr(begin, end - begin);
    const size_t dash = part.find('-');
    const int64_t first = Index(part.substr(0, dash));
    const int64_t last = dash == std::string_view::npos ? first : Index(part.substr(dash + 1));
    for (int64_t i = first; first >= next && i <= last && i < limit; ++i) indices.insert(indices.end(), i);
    if (first >= next && last >= first) next = std::min(last, limit) + 1;
    begin = end + 1;
  }
  return indices;
}

}  // namespace trainyard::reconcile
