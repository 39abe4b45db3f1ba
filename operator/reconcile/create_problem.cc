#include "operator/reconcile/create_problem.h"

#include "operator/base/json_access.h"

namespace trainyard::reconcile {
namespace {

// "TrainingJob b", or nothing for an object without an owner.
std::string OwnerOf(const api::Json& metadata) {
  for (const api::Json& owner : json::List(metadata, "ownerReferences")) {
    if (json::Flag(owner, "controller")) return json::Text(owner, "kind") + " " + json::Text(owner, "name");
  }
  return "";
}

}  // namespace

bool IsGoing(const api::Json& object) {
  return !json::Text(json::Field(object, "metadata"), "deletionTimestamp").empty();
}

CreateProblem TakenBy(const std::string& what, const api::Json& object) {
  const api::Json& metadata = json::Field(object, "metadata");
  const std::string owner = OwnerOf(metadata);
  const std::string why = IsGoing(object) ? "which is being deleted"
                          : owner.empty() ? "which does not belong to this job"
                                          : "which belongs to " + owner;
  return {.reason = kNameInUse,
          .message = what + " " + json::Text(metadata, "name") + " is taken by uid " + json::Text(metadata, "uid") +
                     ", " + why + "; tried again until it is free"};
}

}  // namespace trainyard::reconcile
