// A JSON object whose "items" may be very many, cut anywhere: the body of a list. Only one item is held at a time.
#ifndef TRAINYARD_OPERATOR_KUBE_JSON_ITEMS_H_
#define TRAINYARD_OPERATOR_KUBE_JSON_ITEMS_H_

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/json.h"
#include "operator/base/status.h"
#include "operator/kube/parse_object.h"

namespace trainyard::kube {

class JsonItems {
 public:
  using OnItem = std::function<void(const nlohmann::json&)>;
  // `max_bytes`: of one item, and of all that stands around them. Of the items `fields` are read.
  explicit JsonItems(size_t max_bytes, const FieldPaths& fields = {}) : max_bytes_(max_bytes), parser_(0, fields) {}

  // Takes the next piece and calls `on_item` for each element of "items" that is now whole. kInternal for one that
  // is too long, no object, or no JSON; nothing after it is read.
  Status Feed(const char* data, size_t size, const OnItem& on_item);
  // What stood around the items, which are an empty list in it. kInternal when the object is not whole, or no JSON.
  Result<nlohmann::json> End() const;

 private:
  enum class Place { kAround, kBetween, kItem };
  Status Close(std::string_view last, const OnItem& on_item);
  Status Fits(size_t bytes) const;
  Status Keep(std::string& text, std::string_view piece) const;
  bool ItemsBegin() const;

  const size_t max_bytes_;
  ObjectParser parser_;
  Place place_ = Place::kAround;
  JsonDepth depth_;
  std::string around_;
  std::string item_;  // of an item that has begun in an earlier piece
};

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_JSON_ITEMS_H_
