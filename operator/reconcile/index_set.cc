#include "operator/reconcile/index_set.h"

#include <algorithm>
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

void IndexSet::insert(Range range) {
  // The first range that touches the new one, or lies behind it, and the first one that lies behind it.
  const auto begin = std::partition_point(ranges_.begin(), ranges_.end(),
                                          [&](const Range& each) { return each.last + 1 < range.first; });
  const auto end =
      std::partition_point(begin, ranges_.end(), [&](const Range& each) { return each.first <= range.last + 1; });
  if (begin == end) {
    ranges_.insert(begin, range);
    return;
  }
  *begin = {std::min(range.first, begin->first), std::max(range.last, std::prev(end)->last)};
  ranges_.erase(std::next(begin), end);
}

bool IndexSet::contains(int64_t index) const {
  const auto found =
      std::partition_point(ranges_.begin(), ranges_.end(), [&](const Range& each) { return each.last < index; });
  return found != ranges_.end() && found->first <= index;
}

size_t IndexSet::size() const {
  size_t size = 0;
  for (const Range& range : ranges_) size += static_cast<size_t>(range.last - range.first) + 1;
  return size;
}

std::string FormatIndexSet(const IndexSet& indices) {
  std::string text;
  for (const auto& [first, last] : indices.ranges()) {
    text += (text.empty() ? "" : ",") + std::to_string(first);
    if (last != first) text += "-" + std::to_string(last);
  }
  return text;
}

IndexSet ParseIndexSet(const std::string& text, int64_t limit) {
  IndexSet indices;
  int64_t next = 0;  // a part that goes back is none that was written
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = std::string_view(text).substr(begin, end - begin);
    const size_t dash = part.find('-');
    const int64_t first = Index(part.substr(0, dash));
    const int64_t last = std::min(dash == std::string_view::npos ? first : Index(part.substr(dash + 1)), limit - 1);
    if (first >= next && last >= first) {
      indices.insert({first, last});
      next = last + 1;
    }
    begin = end + 1;
  }
  return indices;
}

}  // namespace trainyard::reconcile
