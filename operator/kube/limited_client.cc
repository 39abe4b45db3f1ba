#include "operator/kube/limited_client.h"

namespace trainyard::kube {

Result<Json> LimitedClient::Around(Kind /*kind*/, const Call& call) {
  const double wait = bucket_.Take();
  if (wait > 0 && !stop_.Sleep(wait)) return Status(Code::kStopped, "the operator stops");
  return call();
}

}  // namespace trainyard::kube
