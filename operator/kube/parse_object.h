// The JSON of an object of the API, without what nobody reads and is as long as all the rest.
#ifndef TRAINYARD_OPERATOR_KUBE_PARSE_OBJECT_H_
#define TRAINYARD_OPERATOR_KUBE_PARSE_OBJECT_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "operator/kube/client.h"

namespace trainyard::kube {

// For one thread at a time.
class ObjectParser {
 public:
  // `around`: the objects around the API's one; 0: it is the text, 1: it is "object" of the text, a watch event.
  // REQUIRES: at most 63 paths.
  ObjectParser(int around, const FieldPaths& unread);

  // The value of `text`, discarded when it is no JSON. metadata.managedFields (who wrote which field) and `unread` are
  // empty where they are lists or objects, and what stood in them may be anything that closes. Of an object that nests
  // deeper than kJsonDepth - 1, the API has what a user wants it to have, and whoever else has objects in the same list
  // is not to suffer: null stands for what is deeper, and it has json::kCut. Never throws.
  nlohmann::json Parse(std::string_view text);

 private:
  using Alive = uint64_t;  // a bit for each path whose begin leads here
  struct Path {
    std::vector<std::string> keys;
    std::string read;  // in quotes, what the items hold that are read; empty: none is
  };

  // A list or an object that is open. `level`: the objects around it and itself; a list has that of what it is in.
  // `of`: whose list it is, of which some items are read.
  struct Open {
    bool is_object;
    size_t level;
    Alive alive;
    const Path* of = nullptr;
  };

  // Reads the text once, into shorter_ as far as anything was left out. False: something never closes.
  bool Shorten(std::string_view text);
  Alive Follow(const Open& in, std::string_view key) const;
  // The path that ends here; nullptr: none does.
  const Path* Ended(Alive alive, size_t level) const;

  const int limit_, around_;
  std::vector<Path> paths_;
  std::vector<Open> open_;
  std::string shorter_;
  bool cut_ = false;
};

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_PARSE_OBJECT_H_
