// What the caches hold, in bytes: estimates for /metrics, made when someone asks.
#ifndef TRAINYARD_OPERATOR_RECONCILE_RECORD_BYTES_H_
#define TRAINYARD_OPERATOR_RECONCILE_RECORD_BYTES_H_

#include <cstdint>

#include "operator/reconcile/observe.h"

namespace trainyard::reconcile {

// The record and what it owns, without the allocator's and the store's own part. A job's is mostly its template,
// configuration and status messages.
int64_t BytesOf(const PodRecord& pod);
int64_t BytesOf(const JobRecord& job);

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_RECORD_BYTES_H_
