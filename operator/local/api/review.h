// What `kubectl auth can-i` asks. Whoever has the token may do everything that is served.
#ifndef TRAINYARD_OPERATOR_LOCAL_API_REVIEW_H_
#define TRAINYARD_OPERATOR_LOCAL_API_REVIEW_H_

#include <string>

#include "operator/local/api/api_result.h"

namespace trainyard::local {

// `review` with its status. `kind`: selfsubjectaccessreviews or selfsubjectrulesreviews of authorization.k8s.io/v1;
// 404 for others.
ApiResult AccessReview(const std::string& kind, Json review);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_API_REVIEW_H_
