// The one flat layout of parameters, gradients and optimizer state.
//
// Parameters lie unit by unit in registration order. Each starts at a multiple of 64 elements, each
// unit is padded to 64 x world, so shards and buckets cut at multiples of 64. Neither padding nor
// world size is ever visible in files.
#ifndef TRAINYARD_TRAINER_PARALLEL_FLAT_LAYOUT_H_
#define TRAINYARD_TRAINER_PARALLEL_FLAT_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/model/builder.h"

namespace trainyard {

constexpr int64_t kBlock = 64;  // elements

struct Range {
  int64_t begin = 0, end = 0;  // elements, half-open
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// Neighbours of one unit, padding included.
struct UnitRun {
  UnitId unit;
  Range range;
};

class FlatLayout {
 public:
  // `cut_at_units`: no bucket holds parts of two units, so that a unit can be put together by itself.
  // REQUIRES: names are unique, world >= 1.
  FlatLayout(std::vector<ParameterSpec> parameters, int world, bool cut_at_units = false);

  const std::vector<ParameterSpec>& parameters() const { return parameters_; }
  // Where parameter i lies, without its padding.
  Range range(size_t i) const { return ranges_[i]; }
  int64_t total() const { return total_; }  // elements, padding included; a multiple of 64 x world
  // Ascending; a unit whose parameters are not neighbours has several.
  const std::vector<UnitRun>& runs() const { return runs_; }

  // Cuts from the end (backward's order) into buckets: the first of at most 1 MiB, then of
  // bucket_bytes, each a multiple of 64 x world elements.
  std::vector<Range> Buckets(int64_t bucket_bytes) const;

  // Elements of the largest of them.
  int64_t LargestBucket(int64_t bucket_bytes) const;

  // What belongs to `rank`: its equal part of each bucket, a multiple of 64 elements, in the buckets' order.
  std::vector<Range> Owned(int rank, int64_t bucket_bytes) const;

 private:
  std::vector<ParameterSpec> parameters_;
  std::vector<Range> ranges_;
  std::vector<UnitRun> runs_;
  int64_t total_ = 0;
  int world_;
  bool cut_at_units_;
};

// Shell-style match: * is any text, ? any character.
bool MatchesPattern(const std::string& pattern, const std::string& text);

// Whether a parameter is declared as trained and matches one of the patterns; no pattern matches everything.
bool IsTrained(const ParameterSpec& spec, const std::vector<std::string>& patterns);

// What a flat layout is made of: the trained parameters of a model, in their order.
std::vector<ParameterSpec> Trained(const ModelDeclaration& declaration, const std::vector<std::string>& patterns);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_PARALLEL_FLAT_LAYOUT_H_
