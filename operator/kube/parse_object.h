// The JSON of an object of the API, without what is of no use to a client and as long as all the rest.
#ifndef TRAINYARD_OPERATOR_KUBE_PARSE_OBJECT_H_
#define TRAINYARD_OPERATOR_KUBE_PARSE_OBJECT_H_

#include <nlohmann/json.hpp>
#include <string_view>

namespace trainyard::kube {

// The value of `text` as ParseJson reads it, metadata.managedFields an empty list: who wrote which field. `around`: the
// objects around the API's one; 0: it is the text, 1: the text is a watch event. Of an object that nests deeper than
// that, the API has what a user wants it to have, and whoever else has objects in the same list is not to suffer: it is
// cut, and has json::kCut.
nlohmann::json ParseObject(std::string_view text, int around);

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_PARSE_OBJECT_H_
