// The one thing that kubectl sends as protobuf and nothing else: `kubectl auth can-i`.
// Source: protobuf.dev/programming-guides/encoding; kubernetes.io/docs/reference/using-api/api-concepts, "Protobuf
// encoding"; the field numbers of k8s.io/api/authorization/v1.
#ifndef TRAINYARD_OPERATOR_LOCAL_API_PROTOBUF_REVIEW_H_
#define TRAINYARD_OPERATOR_LOCAL_API_PROTOBUF_REVIEW_H_

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

namespace trainyard::local {

// A SelfSubjectAccessReview or SelfSubjectRulesReview as JSON; nothing when `body` is no such thing.
std::optional<nlohmann::json> ReviewFromProtobuf(std::string_view body);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_API_PROTOBUF_REVIEW_H_
