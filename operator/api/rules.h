// The CEL rules of the CRD beside their C++ twins: the server applies the text, `validate` and the
// in-memory API apply the function, and the same cases prove both.
#ifndef TRAINYARD_OPERATOR_API_RULES_H_
#define TRAINYARD_OPERATOR_API_RULES_H_

#include <functional>
#include <string>
#include <vector>

#include "operator/api/training_job.h"

namespace trainyard::api {

struct Rule {
  std::string cel;
  std::string message;
  std::string field;  // that it is about
  // Whether the server reports it there. It cannot below metadata, which a CRD's schema does not describe.
  bool reported_at_field = true;
  // Whether the change from `old` (null on create) to `now` is allowed; both whole objects.
  std::function<bool(const Json& now, const Json* old)> allows;
};

// At the root of the object.
const std::vector<Rule>& RootRules();

// A rule on one field, without a view of the old object.
struct FieldRule {
  std::vector<const char*> path;  // from the root of the object; "[]": each item of a list
  std::string cel;
  std::string message;
  bool (*allows)(const Json& value);
};
const std::vector<FieldRule>& FieldRules();

// What `validate` says of a queue as well, in its own form.
bool QueueIsAllowed(const std::string& queue, const std::string& gang);
std::string WhenQueueIsAllowed();

}  // namespace trainyard::api

#endif  // TRAINYARD_OPERATOR_API_RULES_H_
