// What happens to an object between the request and the store: pruning, schema, CEL twins, defaults, and
// which part of it a request may change at all.
#ifndef TRAINYARD_OPERATOR_LOCAL_API_ADMISSION_H_
#define TRAINYARD_OPERATOR_LOCAL_API_ADMISSION_H_

#include <string>

#include "operator/local/api/api_result.h"

namespace trainyard::local {

// Whether the resource has a status subresource.
bool HasStatus(const Resource& resource);

// Prepares a body for creation in `ns`: its kind and namespace are the request's (404 for a namespace that cannot
// be), what only the server sets is gone. Its name is not looked at.
ApiResult PrepareCreate(const Resource& resource, const std::string& ns, Json& object);

// 422 unless the name is an RFC 1123 subdomain.
ApiResult CheckName(const Resource& resource, const std::string& name);

// `old` with what a request through `subresource` ("" or "status") may take from `next`: the status through the
// status subresource alone, everything else through the other door; metadata but labels, annotations, owners
// and managers is the server's.
Json TakeChanges(const Resource& resource, const std::string& subresource, const Json& old, Json next);

// Prunes unknown fields (each a warning; `strict`: 400), checks types, ranges and rules (422), and fills a new
// pod's defaults in. `old`: null for a new object; metadata that is as it was is not looked at again, so that an
// object which an earlier version let in can still be written. Only TrainingJobs and pods have a schema here.
ApiResult Admit(const Resource& resource, const Json* old, bool strict, Json& object);

// 400 for a request that wants its fields checked strictly. `warnings`: what is wrong with them.
ApiResult StrictDecodingError(const Resource& resource, const std::vector<std::string>& warnings);

// The path of the first field of an applied configuration that the kind's schema does not know; empty when there is
// none.
std::string UnknownField(const Resource& resource, Json config);

// Counts a change of a TrainingJob's admitted spec.
// An object as it is read back: one that was stored before its schema had a default has it now.
void ReadBack(const std::string& collection, Json& object);
// Where of the object of this kind a map is one value, as JSON pointers: whoever applies it has all of it.
const std::vector<std::string>& AtomicMaps(const Resource& resource);
void RaiseGeneration(const Resource& resource, const Json& old, Json& object);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_API_ADMISSION_H_
