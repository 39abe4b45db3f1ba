#include "operator/reconcile/problem.h"

#include <algorithm>
#include <array>

#include "operator/api/labels.h"
#include "operator/base/json_access.h"

namespace trainyard::reconcile {
namespace {

constexpr char kRefused[] = "Refused";

// "TrainingJob b", or nothing for an object without an owner.
std::string OwnerOf(const api::Json& metadata) {
  for (const api::Json& owner : json::List(metadata, "ownerReferences")) {
    if (json::Flag(owner, "controller")) return json::Text(owner, "kind") + " " + json::Text(owner, "name");
  }
  return "";
}

}  // namespace

bool IsProblem(const std::string& reason) {
  static constexpr std::array kReasons{kNameInUse,       kForbidden,       kThrottled,
                                       kGangUnavailable, kNoMasterAddress, kRequestFailed};
  static constexpr std::array kKinds{"Pod", "Service", "PodGroup"};
  return std::any_of(kReasons.begin(), kReasons.end(), [&](const char* each) { return reason == each; }) ||
         std::any_of(kKinds.begin(), kKinds.end(),
                     [&](const char* kind) { return reason == std::string(kind) + kRefused; });
}

Status StayWith(const Status& status, const std::string& kind, Problem& problem) {
  const bool refused = status.Is(Code::kInvalid), forbidden = status.Is(Code::kForbidden);
  if (!refused && !forbidden && !status.Is(Code::kThrottled)) return status;
  problem = {.reason = refused ? kind + kRefused : forbidden ? kForbidden : kThrottled, .message = status.message()};
  return Status::Ok();
}

Status LeftWithoutLabel(const std::string& pod, const std::string& job) {
  return Status(Code::kUnavailable, "pod " + pod + " is left without the label " + api::kLabelManaged + "=true or " +
                                        api::kLabelJobName + "=" + job + ": give it back, or delete the pod");
}

bool IsGoing(const api::Json& object) {
  return !json::Text(json::Field(object, "metadata"), "deletionTimestamp").empty();
}

Problem TakenBy(const std::string& what, const api::Json& object) {
  const api::Json& metadata = json::Field(object, "metadata");
  const std::string owner = OwnerOf(metadata);
  const bool left = json::Text(json::Field(metadata, "labels"), api::kLabelManaged) == "true";
  const std::string why = IsGoing(object)         ? "which is being deleted"
                          : owner.empty() && left ? "which an earlier job of this name has left: delete it"
                          : owner.empty()         ? "which does not belong to this job"
                                                  : "which belongs to " + owner;
  return {.reason = kNameInUse,
          .message = what + " " + json::Text(metadata, "name") + " is taken by uid " + json::Text(metadata, "uid") +
                     ", " + why + "; tried again until it is free"};
}

}  // namespace trainyard::reconcile
