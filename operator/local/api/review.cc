#include "operator/local/api/review.h"

#include <algorithm>

#include "operator/base/json_access.h"
#include "operator/local/api/memory_api.h"

namespace trainyard::local {
namespace {

bool Is(const std::string& wanted, const std::string& have) { return wanted == "*" || wanted == have; }

Json Access(const Json& spec) {
  const Json& what = json::Field(spec, "resourceAttributes");
  if (!what.is_object()) return {{"allowed", true}};  // a path
  const std::string group = json::Text(what, "group"), plural = json::Text(what, "resource");
  const auto& all = MemoryApi::Resources();
  const bool served = std::any_of(all.begin(), all.end(), [&](const Resource& resource) {
    return Is(group, resource.group) && Is(plural, resource.plural);
  });
  if (served) return {{"allowed", true}};
  return {{"allowed", false}, {"reason", plural + " are not served on one machine"}};
}

Json Rules() {
  Json rules = Json::array();
  for (const Resource& resource : MemoryApi::Resources())
    rules.push_back({{"verbs", {"*"}}, {"apiGroups", {resource.group}}, {"resources", {resource.plural}}});
  return {{"resourceRules", rules},
          {"nonResourceRules", Json::array({{{"verbs", {"get"}}, {"nonResourceURLs", {"*"}}}})},
          {"incomplete", false}};
}

}  // namespace

ApiResult AccessReview(const std::string& kind, Json review) {
  if (kind == "selfsubjectaccessreviews") {
    review["status"] = Access(json::Field(review, "spec"));
  } else if (kind == "selfsubjectrulesreviews") {
    review["status"] = Rules();
  } else {
    return NoSuchPath();
  }
  return {201, std::move(review), {}};
}

}  // namespace trainyard::local
