// Strategic merge patches, for the built-in kinds: a merge patch in which items of some lists have a key.
// Source: the community's sig-api-machinery/strategic-merge-patch.md, and the patchMergeKey of the core/v1 types.
#ifndef TRAINYARD_OPERATOR_LOCAL_API_STRATEGIC_MERGE_H_
#define TRAINYARD_OPERATOR_LOCAL_API_STRATEGIC_MERGE_H_

#include <nlohmann/json.hpp>

namespace trainyard::local {

// Merges `patch` into `object`. Lists whose items have a key in core/v1 (containers, env, volumes, conditions, ...)
// are merged item by item, finalizers are united, every other list is replaced. The directives are $patch: replace
// and $patch: delete, $deleteFromPrimitiveList/...; $setElementOrder/... and $retainKeys are left out of account.
void StrategicMerge(nlohmann::json& object, const nlohmann::json& patch);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_API_STRATEGIC_MERGE_H_
