// The fields that a pod template may have, as one release of Kubernetes knows them: for checks where no
// API server is at hand (`validate`, and the in-memory API). A real server knows its own release better,
// and the operator asks it by a strict dry run.
#ifndef TRAINYARD_OPERATOR_API_POD_FIELDS_H_
#define TRAINYARD_OPERATOR_API_POD_FIELDS_H_

#include "operator/api/training_job.h"

namespace trainyard::api {

// The table that pod_fields_table.cc holds; tests/cluster/pod_fields.py says how it is written.
extern const char kPodFields[];

// Of a pod template {metadata, spec}, for schema.h.
const Json& PodTemplateSchema();

}  // namespace trainyard::api

#endif  // TRAINYARD_OPERATOR_API_POD_FIELDS_H_
