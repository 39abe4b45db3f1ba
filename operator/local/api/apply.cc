#include "operator/local/api/apply.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "operator/base/json_access.h"

namespace trainyard::local {
namespace {

using Leaves = std::set<std::string>;  // JSON pointers
using Pointers = std::vector<std::string>;

bool IsIn(const Pointers& pointers, const std::string& pointer) {
  return std::find(pointers.begin(), pointers.end(), pointer) != pointers.end();
}

// What identifies an object belongs to nobody.
bool IsIdentity(const std::string& pointer) {
  static const Leaves identity = {"/apiVersion",
                                  "/kind",
                                  "/metadata/name",
                                  "/metadata/namespace",
                                  "/metadata/creationTimestamp",
                                  "/metadata/managedFields"};
  return identity.contains(pointer);
}

std::string Escaped(const std::string& key) {
  std::string out;
  for (const char c : key) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

void Collect(const Json& value, const std::string& pointer, const Pointers& atomic, Leaves& leaves) {
  if (value.is_object() && !value.empty() && !IsIn(atomic, pointer)) {
    for (const auto& [key, item] : value.items()) Collect(item, pointer + "/" + Escaped(key), atomic, leaves);
  } else if (!IsIdentity(pointer)) {
    leaves.insert(pointer);
  }
}

Json ToFields(const Json& value, const std::string& pointer, const Pointers& atomic) {
  Json fields = Json::object();
  if (!value.is_object() || IsIn(atomic, pointer)) return fields;
  for (const auto& [key, item] : value.items()) {
    const std::string inner = pointer + "/" + Escaped(key);
    if (IsIdentity(inner)) continue;
    Json below = ToFields(item, inner, atomic);
    // What holds nothing but an identity is not owned: as a leaf it would be all that others put into it.
    if (item.is_object() && !item.empty() && below.empty() && !IsIn(atomic, inner)) continue;
    fields["f:" + key] = std::move(below);
  }
  return fields;
}

void FromFields(const Json& fields, const std::string& pointer, Leaves& leaves) {
  if (fields.empty()) {
    leaves.insert(pointer);
    return;
  }
  for (const auto& [key, inner] : fields.items()) {
    if (key.starts_with("f:")) FromFields(inner, pointer + "/" + Escaped(key.substr(2)), leaves);
  }
}

// ".spec.restart" for "/spec/restart".
std::string Dotted(std::string pointer) {
  std::replace(pointer.begin(), pointer.end(), '/', '.');
  return pointer;
}

// Takes one leaf out of a fieldsV1, and what is empty without it.
void RemoveField(Json& fields, const std::string& pointer) {
  const Json::json_pointer leaf(pointer);
  if (leaf.empty()) return;
  std::vector<std::string> keys;
  for (Json::json_pointer at = leaf; !at.empty(); at.pop_back()) keys.insert(keys.begin(), "f:" + at.back());
  std::vector<Json*> path = {&fields};
  for (size_t i = 0; i + 1 < keys.size(); ++i) {
    if (!path.back()->contains(keys[i])) return;
    path.push_back(&(*path.back())[keys[i]]);
  }
  for (size_t i = keys.size(); i-- > 0;) {
    if (i + 1 < keys.size() && !(*path[i])[keys[i]].empty()) return;
    path[i]->erase(keys[i]);
  }
}

void Erase(Json& object, const Json::json_pointer& at) {
  if (!object.contains(at)) return;
  Json& parent = object[at.parent_pointer()];
  if (parent.is_object()) parent.erase(at.back());
}

}  // namespace

Json ManagedFields(const Json& config, Json managed, const std::string& manager, const std::string& api_version,
                   Time now, const std::vector<std::string>& atomic) {
  if (!managed.is_array()) managed = Json::array();
  Json kept = Json::array();
  for (const Json& entry : managed) {
    if (json::Text(entry, "manager") != manager || json::Text(entry, "operation") != "Apply") kept.push_back(entry);
  }
  kept.push_back({{"manager", manager},
                  {"operation", "Apply"},
                  {"apiVersion", api_version},
                  {"time", FormatTime(now)},
                  {"fieldsType", "FieldsV1"},
                  {"fieldsV1", ToFields(config, "", atomic)}});
  return kept;
}

std::string Apply(const Json& old, const Json& config, const std::string& manager, bool force,
                  const std::string& api_version, Time now, const std::vector<std::string>& atomic, Json& next) {
  Leaves wanted, mine, others;
  Collect(config, "", atomic, wanted);
  Json managed = json::List(json::Field(old, "metadata"), "managedFields");
  for (Json& entry : managed) {
    Leaves theirs;
    FromFields(json::Field(entry, "fieldsV1"), "", theirs);
    const bool own = json::Text(entry, "manager") == manager && json::Text(entry, "operation") == "Apply";
    (own ? mine : others).insert(theirs.begin(), theirs.end());
    if (own) continue;
    for (const std::string& leaf : wanted) {
      const Json::json_pointer at(leaf);
      if (!theirs.contains(leaf) || !old.contains(at) || old[at] == config[at]) continue;
      if (!force)
        return "Apply failed with 1 conflict: conflict with \"" + json::Text(entry, "manager") + "\": " + Dotted(leaf);
      RemoveField(entry["fieldsV1"], leaf);  // by force it is no longer theirs
    }
  }
  for (const std::string& leaf : mine) {
    if (!wanted.contains(leaf) && !others.contains(leaf)) Erase(next, Json::json_pointer(leaf));
  }
  Json patch = config;
  patch["metadata"].erase("managedFields");
  patch["metadata"].erase("creationTimestamp");
  next.merge_patch(patch);
  for (const std::string& pointer : atomic) {  // replaced, not merged
    if (const Json::json_pointer at(pointer); config.contains(at)) next[at] = config[at];
  }
  next["metadata"]["managedFields"] = ManagedFields(config, std::move(managed), manager, api_version, now, atomic);
  return "";
}

}  // namespace trainyard::local
