#include "operator/api/pod_checks.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "operator/api/json.h"
#include "operator/api/metadata.h"
#include "operator/api/quantity.h"
#include "operator/base/json_access.h"

namespace trainyard::api {
namespace {

constexpr char kLabel[] = "at most 63 characters of a-z, 0-9 and -, with a letter or digit at both ends";
constexpr char kQuantity[] = "a quantity, such as 2, 500m or 16Gi";

std::string At(const std::string& path, size_t i) { return path + "[" + std::to_string(i) + "]"; }

class Checker {
 public:
  explicit Checker(std::set<std::string> more_volumes) : more_volumes_(std::move(more_volumes)) {}
  std::vector<Cause> causes;

  void Check(const Json& spec, const std::string& path) {
    const Json& volumes = json::List(spec, "volumes");
    for (size_t i = 0; i < volumes.size(); ++i) {
      CheckName(volumes[i], At(path + ".volumes", i), volumes_);
      CheckKind(volumes[i], At(path + ".volumes", i));
    }
    std::set<std::string> names;
    // The regular ones come first: of two, the other one is told.
    for (const char* list : {"containers", "initContainers"}) {
      const Json& containers = json::List(spec, list);
      for (size_t i = 0; i < containers.size(); ++i) {
        const std::string at = At(path + "." + list, i);
        CheckName(containers[i], at, names);
        CheckContainer(containers[i], at);
      }
    }
  }

 private:
  void Wrong(const std::string& field, const Json& value, const std::string& allowed) {
    causes.push_back(
        {"FieldValueInvalid", "Invalid value: " + Shown(value) + ": must be " + allowed, field, Shown(value), allowed});
  }

  void CheckName(const Json& object, const std::string& path, std::set<std::string>& names) {
    const std::string name = json::Text(object, "name");
    if (!IsDnsLabel(name)) return Wrong(path + ".name", name, kLabel);
    if (!names.insert(name).second)
      causes.push_back({"FieldValueDuplicate", "Duplicate value: " + Shown(name), path + ".name", Shown(name),
                        "a name that stands once"});
  }

  // What else than a name the schema has let through is a kind. Each further one is told; which is the first is another
  // order's to the server.
  void CheckKind(const Json& volume, const std::string& path) {
    int kinds = 0;
    for (const auto& [kind, value] : volume.items()) {
      if (kind == "name" || value.is_null() || kinds++ == 0) continue;
      causes.push_back({"FieldValueForbidden", "Forbidden: may not specify more than 1 volume type", path + "." + kind,
                        "a second kind of volume", "one kind"});
    }
  }

  void CheckContainer(const Json& container, const std::string& path) {
    if (json::Text(container, "image").empty())
      causes.push_back({"FieldValueRequired", "Required value", path + ".image", "", "an image's name"});
    const Json& variables = json::List(container, "env");
    for (size_t i = 0; i < variables.size(); ++i) {
      const std::string name = json::Text(variables[i], "name");
      const bool good = !name.empty() &&
                        std::all_of(name.begin(), name.end(), [](char c) { return c >= 0x20 && c < 0x7f && c != '='; });
      if (!good) Wrong(At(path + ".env", i) + ".name", name, "printable ASCII characters other than '='");
    }
    std::set<std::string> places;
    const Json& mounts = json::List(container, "volumeMounts");
    for (size_t i = 0; i < mounts.size(); ++i) {
      const std::string place = json::Text(mounts[i], "mountPath"), volume = json::Text(mounts[i], "name");
      if (!volumes_.contains(volume) && !more_volumes_.contains(volume))
        causes.push_back({"FieldValueNotFound", "Not found: " + Shown(volume), At(path + ".volumeMounts", i) + ".name",
                          Shown(volume), Volumes()});
      if (!places.insert(place).second) Wrong(At(path + ".volumeMounts", i) + ".mountPath", place, "unique");
    }
    CheckResources(json::Field(container, "resources"), path + ".resources");
  }

  // What may be mounted.
  std::string Volumes() const {
    if (volumes_.empty()) return "the name of a volume of the pod, which has none";
    std::string names;
    for (const std::string& name : volumes_) names += (names.empty() ? "" : ", ") + name;
    return "one of the pod's volumes: " + names;
  }

  // An extended resource, of which there are whole ones.
  static bool IsDevice(const std::string& name) {
    return name.find('/') != std::string::npos && name.find("kubernetes.io/") == std::string::npos;
  }

  // What no two pods may be promised.
  static bool IsExclusive(const std::string& name) { return IsDevice(name) || name.starts_with("hugepages-"); }

  void CheckResources(const Json& resources, const std::string& path) {
    const Json& limits = json::Field(resources, "limits");
    for (const char* list : {"limits", "requests"}) {
      for (const auto& [name, value] : json::Field(resources, list).items()) {
        const std::string field = path + "." + list + "[" + name + "]";
        const std::optional<long double> quantity = Quantity(value);
        if (!quantity) {
          causes.push_back({"FieldValueTypeInvalid", "Invalid value: " + Shown(value) + ": must be " + kQuantity, field,
                            Shown(value), kQuantity});
        } else if (*quantity < 0) {
          Wrong(field, value, "greater than or equal to 0");
        } else if (IsDevice(name) && std::fmod(*quantity, kOne) != 0) {
          Wrong(field, value, "an integer");
        }
      }
    }
    for (const auto& [name, value] : json::Field(resources, "requests").items()) {
      const Json& limit = json::Field(limits, name.c_str());
      const std::optional<long double> wanted = Quantity(value), most = Quantity(limit);
      const bool device = IsExclusive(name);
      if (device && limit.is_null())
        causes.push_back({"FieldValueRequired", "Required value: Limit must be set for non overcommitable resources",
                          path + ".limits", "", "a limit of " + name + ", equal to what is requested"});
      if (!wanted || !most) continue;
      const std::string text = limit.is_string() ? limit.get<std::string>() : Shown(limit);
      if (device && *wanted != *most) Wrong(path + ".requests", value, "equal to " + name + " limit of " + text);
      if (!device && *wanted > *most)
        Wrong(path + ".requests", value, "less than or equal to " + name + " limit of " + text);
    }
  }

  std::set<std::string> volumes_;
  const std::set<std::string> more_volumes_;
};

}  // namespace

std::vector<Cause> CheckPodSpec(const Json& spec, const std::string& path, const std::set<std::string>& more_volumes) {
  Checker checker(more_volumes);
  checker.Check(spec, path);
  return std::move(checker.causes);
}

}  // namespace trainyard::api
