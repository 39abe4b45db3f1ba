#include "operator/local/api/service_address.h"

#include <arpa/inet.h>

#include <algorithm>

#include "operator/api/metadata.h"
#include "operator/base/json_access.h"

namespace trainyard::local {
namespace {

using api::Cause;
constexpr char kHeadless[] = "None";
constexpr int kAddresses = 0xfffe;  // 127.255.0.1 to 127.255.255.254

std::string Nth(int n) { return kServicePrefix + std::to_string(n / 256) + "." + std::to_string(n % 256); }

std::string Shown(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

Cause Required(const std::string& field, const std::string& why = "") {
  return {"FieldValueRequired", "Required value" + (why.empty() ? "" : ": " + why), field, "", ""};
}

Cause Wrong(const std::string& field, const Json& value, const std::string& why) {
  return {"FieldValueInvalid", "Invalid value: " + Shown(value) + ": " + why, field, "", ""};
}

// It is a name in the DNS of old (RFC 1035): stricter than other objects' names.
void CheckName(const Json& metadata, std::vector<Cause>& causes) {
  const std::string name = json::Text(metadata, "name");
  if (api::IsDnsLabel(name) && name.front() >= 'a') return;
  causes.push_back(Wrong("metadata.name", name,
                         "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
                         "alphabetic character, and end with an alphanumeric character"));
}

void CheckPorts(const Json& spec, std::vector<Cause>& causes) {
  const Json& ports = json::List(spec, "ports");
  if (ports.empty() && json::Text(spec, "clusterIP") != kHeadless) causes.push_back(Required("spec.ports"));
  for (size_t i = 0; i < ports.size(); ++i) {
    const std::string field = "spec.ports[" + std::to_string(i) + "]";
    if (ports.size() > 1 && json::Text(ports[i], "name").empty()) causes.push_back(Required(field + ".name"));
    const int64_t port = json::Whole(ports[i], "port");
    if (port < 1 || port > 65535)
      causes.push_back(Wrong(field + ".port", port, "must be between 1 and 65535, inclusive"));
  }
}

void CheckSelector(const Json& spec, std::vector<Cause>& causes) {
  for (const auto& [key, value] : json::Field(spec, "selector").items()) {
    if (!api::IsLabelKey(key))
      causes.push_back(Wrong("spec.selector", key, std::string("must be ") + api::kLabelKeyRule));
    const std::string text = value.is_string() ? value.get<std::string>() : "";
    if (!api::IsLabelValue(text))
      causes.push_back(Wrong("spec.selector", text, std::string("must be ") + api::kLabelValueRule));
  }
}

void SetIfAbsent(Json& object, const char* key, Json value) {
  if (json::Field(object, key).is_null()) object[key] = std::move(value);
}

}  // namespace

std::string AddressOf(const Json& service) {
  const std::string address = json::Text(json::Field(service, "spec"), "clusterIP");
  return address == kHeadless ? "" : address;
}

void DefaultService(Json& service, const Json* old) {
  Json& spec = service["spec"];
  if (!spec.is_object()) spec = Json::object();
  const std::string before = old ? json::Text(json::Field(*old, "spec"), "clusterIP") : "";
  if (json::Text(spec, "clusterIP").empty() && !before.empty()) spec["clusterIP"] = before;
  for (const auto& [key, value] : {std::pair<const char*, Json>{"type", "ClusterIP"},
                                   {"sessionAffinity", "None"},
                                   {"internalTrafficPolicy", "Cluster"},
                                   {"ipFamilies", Json::array({"IPv4"})},
                                   {"ipFamilyPolicy", "SingleStack"}})
    SetIfAbsent(spec, key, value);
  if (!json::Field(spec, "ports").is_array()) spec.erase("ports");
  if (spec.contains("ports")) {
    for (Json& port : spec["ports"]) {
      if (!port.is_object()) port = Json::object();
      SetIfAbsent(port, "protocol", "TCP");
      SetIfAbsent(port, "targetPort", json::Field(port, "port"));
    }
  }
  if (json::Text(spec, "clusterIP").empty()) {
    spec.erase("clusterIP");
    spec.erase("clusterIPs");
  } else {
    spec["clusterIPs"] = Json::array({spec["clusterIP"]});
  }
  if (!json::Field(service, "status").is_object()) service["status"] = {{"loadBalancer", Json::object()}};
}

std::vector<Cause> CheckService(const Json& service, const Json* old) {
  const Json& spec = json::Field(service, "spec");
  std::vector<Cause> causes;
  CheckName(json::Field(service, "metadata"), causes);
  CheckPorts(spec, causes);
  CheckSelector(spec, causes);
  if (const std::string type = json::Text(spec, "type"); type != "ClusterIP")
    causes.push_back({"FieldValueNotSupported",
                      "Unsupported value: " + Shown(type) + ": supported values: \"ClusterIP\"", "spec.type", "", ""});
  const Json& address = json::Field(spec, "clusterIP");
  if (old && address != json::Field(json::Field(*old, "spec"), "clusterIP"))
    causes.push_back(Wrong("spec.clusterIPs[0]", json::Field(spec, "clusterIPs"), "may not change once set"));
  in_addr parsed{};
  if (!old && address.is_string() && address != kHeadless &&
      inet_pton(AF_INET, address.get_ref<const std::string&>().c_str(), &parsed) != 1)
    causes.push_back(
        Wrong("spec.clusterIPs[0]", address, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"));
  return causes;
}

std::vector<Cause> AssignAddress(Json& service, const std::set<std::string>& taken) {
  Json& spec = service["spec"];
  if (json::Text(spec, "clusterIP") == kHeadless) return {};
  if (const std::string wanted = AddressOf(service); !wanted.empty()) {
    const std::string why = !wanted.starts_with(kServicePrefix)
                                ? "the provided network does not match the current range"
                            : taken.contains(wanted) ? "provided IP is already allocated"
                                                     : "";
    if (why.empty()) return {};
    return {Wrong("spec.clusterIPs", spec["clusterIPs"], "failed to allocate IP " + wanted + ": " + why)};
  }
  for (int n = 1; n <= kAddresses; ++n) {
    if (taken.contains(Nth(n))) continue;
    spec["clusterIP"] = Nth(n);
    spec["clusterIPs"] = Json::array({Nth(n)});
    return {};
  }
  return {{"InternalError", "failed to allocate a serviceIP: range is full", "spec.clusterIPs", "", ""}};
}

}  // namespace trainyard::local
