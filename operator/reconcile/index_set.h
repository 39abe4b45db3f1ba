// A set of workers as one short text: "0-3,7". A status keeps it for jobs of thousands.
#ifndef TRAINYARD_OPERATOR_RECONCILE_INDEX_SET_H_
#define TRAINYARD_OPERATOR_RECONCILE_INDEX_SET_H_

#include <cstdint>
#include <set>
#include <string>

namespace trainyard::reconcile {

using IndexSet = std::set<int64_t>;

// Ranges in ascending order; empty for none.
std::string FormatIndexSet(const IndexSet& indices);
// What FormatIndexSet writes, as far as it is below `limit`; parts that are anything else are left out.
IndexSet ParseIndexSet(const std::string& text, int64_t limit);

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_INDEX_SET_H_
