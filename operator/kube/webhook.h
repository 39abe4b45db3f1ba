// Whose answer it is: the API server's own, or that of an admission webhook behind it.
#ifndef TRAINYARD_OPERATOR_KUBE_WEBHOOK_H_
#define TRAINYARD_OPERATOR_KUBE_WEBHOOK_H_

#include <string>

#include "operator/base/status.h"

namespace trainyard::kube {

// Whether a webhook refused the request, with whatever code it chose, or failed: it belongs to some namespaces, and the
// server may be well. By the two forms that k8s.io/apiserver gives its message (admission/plugin/webhook).
inline bool IsOfWebhook(const Status& status) {
  const std::string& said = status.message();
  return said.find("admission webhook \"") != std::string::npos || said.find("calling webhook") != std::string::npos;
}

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_WEBHOOK_H_
