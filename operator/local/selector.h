// Label and field selectors: "a=b,c!=d,e in (f,g),h,!i" and "metadata.name=x,status.phase!=Running".
#ifndef TRAINYARD_OPERATOR_LOCAL_SELECTOR_H_
#define TRAINYARD_OPERATOR_LOCAL_SELECTOR_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "operator/base/status.h"

namespace trainyard::local {

class Selector {
 public:
  // kInvalid when either text cannot be read, or when a field is not one that can be selected by:
  // metadata.name, metadata.namespace, status.phase, spec.nodeName, involvedObject.*, regarding.*.
  static Result<Selector> Parse(const std::string& labels, const std::string& fields);

  bool Matches(const nlohmann::json& object) const;
  bool empty() const { return labels_.empty() && fields_.empty(); }

 private:
  struct Requirement {
    std::string key;
    enum { kIn, kNotIn, kExists, kMissing } kind = kIn;
    std::vector<std::string> values;
    bool Holds(const std::string* value) const;
  };
  std::vector<Requirement> labels_, fields_;
};

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_SELECTOR_H_
