// The grammar of label selectors, a token at a time.
#ifndef TRAINYARD_OPERATOR_LOCAL_API_LABEL_SELECTOR_H_
#define TRAINYARD_OPERATOR_LOCAL_API_LABEL_SELECTOR_H_

#include <string>
#include <vector>

#include "operator/local/api/selector.h"

namespace trainyard::local {

// All requirements of the text. kInvalid in apimachinery's words: "unable to parse requirement: found '(', expected:
// identifier".
Result<std::vector<Requirement>> ParseLabelSelector(const std::string& text);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_API_LABEL_SELECTOR_H_
