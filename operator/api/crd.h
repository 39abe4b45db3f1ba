// The CustomResourceDefinition and the API reference, made from fields.h.
#ifndef TRAINYARD_OPERATOR_API_CRD_H_
#define TRAINYARD_OPERATOR_API_CRD_H_

#include <string>

#include "operator/api/training_job.h"

namespace trainyard::api {

// apiextensions.k8s.io/v1, with the CEL rules of rules.h.
Json CustomResourceDefinition();
// The same as YAML, for `kubectl apply -f`.
std::string CrdYaml();
// The OpenAPI v3 schema of a whole TrainingJob.
Json JobSchema();
// docs/api.md.
std::string ReferenceMarkdown();

}  // namespace trainyard::api

#endif  // TRAINYARD_OPERATOR_API_CRD_H_
