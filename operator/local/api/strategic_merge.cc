#include "operator/local/api/strategic_merge.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "operator/base/json_access.h"

namespace trainyard::local {
namespace {

using Json = nlohmann::json;

constexpr char kDirective[] = "$patch", kDeleteItems[] = "$deleteFromPrimitiveList/";

// The key of a list's items; null for a list that is replaced.
const char* KeyOf(const std::string& list) {
  static const std::map<std::string, const char*> keys = {{"containers", "name"},
                                                          {"initContainers", "name"},
                                                          {"ephemeralContainers", "name"},
                                                          {"env", "name"},
                                                          {"volumes", "name"},
                                                          {"volumeMounts", "mountPath"},
                                                          {"conditions", "type"},
                                                          {"imagePullSecrets", "name"},
                                                          {"hostAliases", "ip"},
                                                          {"ownerReferences", "uid"},
                                                          {"volumeDevices", "devicePath"}};
  const auto found = keys.find(list);
  return found == keys.end() ? nullptr : found->second;
}

// The ports of a container and of a service have different keys.
const char* KeyOf(const std::string& list, const Json& patch) {
  if (list != "ports") return KeyOf(list);
  const bool container =
      std::any_of(patch.begin(), patch.end(), [](const Json& p) { return p.contains("containerPort"); });
  return container ? "containerPort" : "port";
}

// Where the items of a list stand, by what identifies them: looking through the list for each item of a patch could
// take minutes. Of several with one id the first comes first.
using Places = std::multimap<Json, size_t>;

void MergeItems(Json& list, const Json& patch, const char* key) {
  if (!list.is_array()) list = Json::array();
  Places places;
  for (const Json& each : list) places.emplace(json::Field(each, key), places.size());
  std::set<size_t> gone;
  for (const Json& item : patch) {
    const Json& id = json::Field(item, key);
    if (json::Text(item, kDirective) == "replace") continue;
    const auto same = places.lower_bound(id);
    const bool found = same != places.end() && same->first == id;
    if (json::Text(item, kDirective) == "delete") {
      if (!found) continue;
      gone.insert(same->second);
      places.erase(same);
    } else if (found) {
      StrategicMerge(list[same->second], item);
    } else {
      places.emplace(id, list.size());
      list.push_back(Json::object());
      StrategicMerge(list.back(), item);
    }
  }
  Json left = Json::array();
  for (size_t i = 0; i < list.size(); ++i) {
    if (!gone.contains(i)) left.push_back(std::move(list[i]));
  }
  list = std::move(left);
}

bool Replaces(const Json& list) {
  return std::any_of(list.begin(), list.end(),
                     [](const Json& item) { return json::Text(item, kDirective) == "replace"; });
}

void MergeList(Json& list, const std::string& name, const Json& patch) {
  const char* key = KeyOf(name, patch);
  if (key && Replaces(patch)) list = Json::array();
  if (key) return MergeItems(list, patch, key);
  if (name != "finalizers" || !list.is_array()) return void(list = patch);
  std::set<Json> there(list.begin(), list.end());
  for (const Json& item : patch) {
    if (there.insert(item).second) list.push_back(item);
  }
}

}  // namespace

void StrategicMerge(Json& object, const Json& patch) {
  if (!object.is_object() || json::Text(patch, kDirective) == "replace") object = Json::object();
  for (const auto& [key, value] : patch.items()) {
    if (key.starts_with(kDeleteItems)) {
      Json& list = object[key.substr(sizeof kDeleteItems - 1)];
      if (!list.is_array() || !value.is_array()) continue;
      const std::set<Json> gone(value.begin(), value.end());
      std::erase_if(list.get_ref<Json::array_t&>(), [&](const Json& item) { return gone.contains(item); });
    } else if (key.starts_with("$")) {
      continue;
    } else if (value.is_null() || json::Text(value, kDirective) == "delete") {
      object.erase(key);
    } else if (value.is_object()) {
      StrategicMerge(object[key], value);
    } else if (value.is_array()) {
      MergeList(object[key], key, value);
    } else {
      object[key] = value;
    }
  }
}

}  // namespace trainyard::local
