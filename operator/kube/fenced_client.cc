#include "operator/kube/fenced_client.h"

namespace trainyard::kube {

Result<Json> FencedClient::Around(Kind kind, const Call& call) {
  if (kind == Kind::kWrite && !leads_())
    return Status(Code::kStopped, "this operator does not lead: nothing was written");
  return call();
}

}  // namespace trainyard::kube
