#include "trainer/metrics/event.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "trainer/base/text.h"

namespace trainyard {
namespace {

size_t NamesOf(const auto& pairs) {
  size_t bytes = 0;
  for (const auto& [name, value] : pairs) bytes += sizeof(name) + sizeof(value) + name.size();
  return bytes;
}

}  // namespace

size_t BytesOf(const Event& event) {
  const size_t content =
      std::visit(Cases{[](const Scalars& s) { return NamesOf(s); }, [](const Image& i) { return i.pixels.size(); },
                       [](const Histogram& h) { return 16 * h.counts.size(); },
                       [](const Text& t) { return t.text.size(); }, [](const HParams& h) { return NamesOf(h.values); },
                       [](const Curve& c) { return 16 * c.x.size(); }, [](const RunComplete&) { return size_t{0}; }},
                 event.content);
  return sizeof(Event) + content;
}

std::string FileNameOf(const std::string& tag, int64_t step) {
  std::string name = tag;
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-') c = '_';
  }
  return name + Format("-step-%08lld", static_cast<long long>(step));
}

Histogram HistogramOf(std::string tag, std::span<const double> values, int buckets) {
  Histogram h;
  h.tag = std::move(tag);
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    h.min = h.count > 0 ? std::min(h.min, value) : value;
    h.max = h.count > 0 ? std::max(h.max, value) : value;
    ++h.count;
    h.sum += value;
    h.sum_squares += value * value;
  }
  const auto n = static_cast<size_t>(buckets);
  const double width = (h.max - h.min) / buckets;
  for (size_t i = 1; i < n; ++i) h.limits.push_back(h.min + width * static_cast<double>(i));
  h.limits.push_back(h.max);  // to the bit, so that every value has a bucket
  h.counts.assign(n, 0);
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    ++h.counts[static_cast<size_t>(std::lower_bound(h.limits.begin(), h.limits.end(), value) - h.limits.begin())];
  }
  return h;
}

}  // namespace trainyard
