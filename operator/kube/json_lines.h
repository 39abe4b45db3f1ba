// Events, each a JSON document on a line of its own, cut anywhere: the body of a watch.
#ifndef TRAINYARD_OPERATOR_KUBE_JSON_LINES_H_
#define TRAINYARD_OPERATOR_KUBE_JSON_LINES_H_

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "operator/base/status.h"
#include "operator/kube/parse_object.h"

namespace trainyard::kube {

class JsonLines {
 public:
  // `max_bytes`: of one document. Of the events' objects `fields` are read.
  explicit JsonLines(size_t max_bytes, const FieldPaths& fields = {}) : max_bytes_(max_bytes), parser_(1, fields) {}

  // Takes the next piece and calls `on_document` for each document that is now whole. kInternal for one
  // that is too long or no JSON; nothing after it is read.
  Status Feed(const char* data, size_t size, const std::function<void(nlohmann::json)>& on_document);

 private:
  size_t max_bytes_;
  ObjectParser parser_;
  std::string rest_;
};

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_JSON_LINES_H_
