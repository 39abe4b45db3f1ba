// Label and field selectors: "a=b,c!=d,e in (f,g),h,!i,j>5" and "metadata.name=x,status.phase!=Running".
// Source: kubernetes.io/docs/concepts/overview/working-with-objects/labels and .../field-selectors; the words of
// errors are apimachinery's.
#ifndef TRAINYARD_OPERATOR_LOCAL_API_SELECTOR_H_
#define TRAINYARD_OPERATOR_LOCAL_API_SELECTOR_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "operator/base/status.h"
#include "operator/kube/client.h"

namespace trainyard::local {

struct Requirement {
  std::string key;
  enum Kind { kIn, kNotIn, kExists, kMissing, kGreater, kLess } kind = kIn;
  std::vector<std::string> values;
  // `value`: of the key; null when there is none.
  bool Holds(const std::string* value) const;
};

class Selector {
 public:
  Selector() = default;  // selects everything

  // kInvalid when either text cannot be read, or names a field that objects of `resource` are not selected by.
  static Result<Selector> Parse(const kube::Resource& resource, const std::string& labels, const std::string& fields);

  bool Matches(const nlohmann::json& object) const;
  bool empty() const { return labels_.empty() && fields_.empty(); }

 private:
  std::vector<Requirement> labels_, fields_;
};

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_API_SELECTOR_H_
