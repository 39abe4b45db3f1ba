// What kube-apiserver refuses in a pod beyond the types of its fields, as far as people get it wrong: names that stand
// twice, names of variables, volumes of two kinds, mounts of volumes that are not there, containers without an image,
// quantities, requests above limits.
// Source: Kubernetes' pkg/apis/core/validation.
#ifndef TRAINYARD_OPERATOR_API_POD_CHECKS_H_
#define TRAINYARD_OPERATOR_API_POD_CHECKS_H_

#include <set>
#include <string>
#include <vector>

#include "operator/api/schema.h"

namespace trainyard::api {

// REQUIRES: `spec` fits the pod's schema (pod_fields.h). `path`: of `spec`. `more_volumes`: names of those that the pod
// will have beside its own.
std::vector<Cause> CheckPodSpec(const Json& spec, const std::string& path,
                                const std::set<std::string>& more_volumes = {});

}  // namespace trainyard::api

#endif  // TRAINYARD_OPERATOR_API_POD_CHECKS_H_
