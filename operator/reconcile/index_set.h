// A set of workers, and as one short text: "0-3,7". A status keeps it for jobs of thousands.
#ifndef TRAINYARD_OPERATOR_RECONCILE_INDEX_SET_H_
#define TRAINYARD_OPERATOR_RECONCILE_INDEX_SET_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace trainyard::reconcile {

// Kept as ranges: most of a job's workers are in it side by side, and it is copied whenever the job is looked at.
class IndexSet {
 public:
  struct Range {
    int64_t first, last;  // both are in it
    bool operator==(const Range&) const = default;
  };

  IndexSet() = default;
  IndexSet(std::initializer_list<int64_t> indices) {
    for (const int64_t index : indices) insert(index);
  }

  void insert(int64_t index) { insert(Range{index, index}); }
  // REQUIRES: first <= last. Takes the longer the more ranges lie behind it.
  void insert(Range range);
  bool contains(int64_t index) const;
  bool empty() const { return ranges_.empty(); }
  size_t size() const;
  void clear() { ranges_.clear(); }
  // In ascending order, with a gap between any two.
  const std::vector<Range>& ranges() const { return ranges_; }
  bool operator==(const IndexSet&) const = default;

 private:
  std::vector<Range> ranges_;
};

// Ranges in ascending order; empty for none.
std::string FormatIndexSet(const IndexSet& indices);
// What FormatIndexSet writes, as far as it is below `limit`; parts that are anything else are left out.
IndexSet ParseIndexSet(const std::string& text, int64_t limit);

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_INDEX_SET_H_
