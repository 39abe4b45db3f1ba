// Fields that stand twice in one JSON object: a reader keeps the last and says nothing.
#ifndef TRAINYARD_OPERATOR_LOCAL_API_DUPLICATE_FIELDS_H_
#define TRAINYARD_OPERATOR_LOCAL_API_DUPLICATE_FIELDS_H_

#include <string>
#include <vector>

namespace trainyard::local {

// Their paths ("spec.workers", "spec.rules[0].action"), each once. REQUIRES: ParseJson reads `text`.
std::vector<std::string> DuplicateFields(const std::string& text);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_API_DUPLICATE_FIELDS_H_
