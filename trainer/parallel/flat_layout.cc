#include "trainer/parallel/flat_layout.h"

#include <fnmatch.h>

#include <algorithm>

namespace trainyard {
namespace {

int64_t RoundUp(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace

bool MatchesPattern(const std::string& pattern, const std::string& text) {
  return fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
}

bool IsTrained(const ParameterSpec& spec, const std::vector<std::string>& patterns) {
  const auto matches = [&](const std::string& pattern) { return MatchesPattern(pattern, spec.name); };
  return spec.trainable && (patterns.empty() || std::any_of(patterns.begin(), patterns.end(), matches));
}

std::vector<ParameterSpec> Trained(const ModelDeclaration& declaration, const std::vector<std::string>& patterns) {
  std::vector<ParameterSpec> specs;
  for (const ParameterSpec& spec : declaration.parameters) {
    if (IsTrained(spec, patterns)) specs.push_back(spec);
  }
  return specs;
}

FlatLayout::FlatLayout(std::vector<ParameterSpec> parameters, int world, bool cut_at_units)
    : parameters_(std::move(parameters)), world_(world), cut_at_units_(cut_at_units) {
  for (const ParameterSpec& spec : parameters_) {
    const bool new_unit = runs_.empty() || spec.unit != runs_.back().unit;
    total_ = RoundUp(total_, new_unit ? kBlock * world_ : kBlock);
    if (new_unit) runs_.push_back({spec.unit, {total_, total_}});
    ranges_.push_back({total_, total_ + spec.numel()});
    total_ = ranges_.back().end;
    runs_.back().range.end = RoundUp(total_, kBlock * world_);
  }
  total_ = RoundUp(total_, kBlock * world_);
}

std::vector<Range> FlatLayout::Buckets(int64_t bucket_bytes) const {
  const int64_t unit = kBlock * world_;
  const auto elements = [&](int64_t bytes) { return std::max(unit, bytes / int64_t{sizeof(float)} / unit * unit); };
  const int64_t bucket = elements(bucket_bytes), first = std::min(bucket, elements(1 << 20));
  std::vector<Range> buckets;
  const auto cut = [&](Range range) {
    for (int64_t end = range.end; end > range.begin;) {
      const int64_t begin = std::max(range.begin, end - (buckets.empty() ? first : bucket));
      buckets.push_back({begin, end});
      end = begin;
    }
  };
  if (!cut_at_units_) cut({0, total_});
  for (size_t i = runs_.size(); cut_at_units_ && i > 0; --i) cut(runs_[i - 1].range);
  return buckets;
}

int64_t FlatLayout::LargestBucket(int64_t bucket_bytes) const {
  int64_t largest = 0;
  for (const Range bucket : Buckets(bucket_bytes)) largest = std::max(largest, bucket.size());
  return largest;
}

std::vector<Range> FlatLayout::Owned(int rank, int64_t bucket_bytes) const {
  std::vector<Range> owned;
  for (const Range bucket : Buckets(bucket_bytes)) {
    const int64_t shard = bucket.size() / world_;
    owned.push_back({bucket.begin + shard * rank, bucket.begin + shard * (rank + 1)});
  }
  return owned;
}

}  // namespace trainyard
