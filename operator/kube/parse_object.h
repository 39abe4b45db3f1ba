// The JSON of an object of the API, without what nobody reads and is as long as all the rest.
#ifndef TRAINYARD_OPERATOR_KUBE_PARSE_OBJECT_H_
#define TRAINYARD_OPERATOR_KUBE_PARSE_OBJECT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "operator/kube/client.h"

namespace trainyard::kube {

// For one thread at a time.
class ObjectParser {
 public:
  // `around`: the objects around the API's one; 0: it is the text, 1: it is "object" of the text, a watch event, and
  // what a watch itself goes by is read of it as well.
  ObjectParser(int around, const FieldPaths& fields);

  // The value of `text`, discarded when it is no JSON. Of it stays what `fields` name; metadata.managedFields (who
  // wrote which field) never does. What stood in what is left out may be anything that closes. Of an object that nests
  // deeper than kJsonDepth - 1, the API has what a user wants it to have, and whoever else has objects in the same list
  // is not to suffer: null stands for what is deeper, and it has json::kCut. Never throws.
  nlohmann::json Parse(std::string_view text);

 private:
  // What is read of a value: all of it, when it has others and no children.
  struct Node {
    std::string key;
    bool others = false;  // the fields that no child names, too
    bool left_out = false;
    std::vector<std::string> items;  // in quotes; of a list the items that hold one of them; empty: each
    std::vector<Node> children;

    bool whole() const { return others && children.empty() && items.empty(); }
    const Node* Find(std::string_view name) const;
    // The child of that name, made if there is none.
    Node& Child(std::string_view name);
    void Read(const std::vector<std::string>& keys, const std::string& item);
    void ReadAll();
  };

  // Each makes `value`, a null, what is read of the value that begins at `at`, in `depth` lists and objects, and
  // returns where the text goes on behind it; npos: it has no end, or is no JSON.
  size_t Value(size_t at, const Node& node, int depth, nlohmann::json& value);
  size_t Scalar(size_t at, nlohmann::json& value) const;
  size_t Fields(size_t at, const Node& node, int depth, nlohmann::json& value);
  size_t Items(size_t at, const Node& node, int depth, nlohmann::json& value);
  // Where something else than space is.
  size_t Token(size_t at) const;
  // Whether a comma is at `at`, which then goes to what is behind it.
  bool More(size_t& at) const;
  char At(size_t at) const { return at < text_.size() ? text_[at] : '\0'; }

  const int limit_, around_;
  const Node all_{.key = "", .others = true, .left_out = false, .items = {}, .children = {}};
  Node root_;
  std::string_view text_;
  bool cut_ = false;
};

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_PARSE_OBJECT_H_
