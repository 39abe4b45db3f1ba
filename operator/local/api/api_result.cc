#include "operator/local/api/api_result.h"

namespace trainyard::local {
namespace {

// "pods", "trainingjobs.trainyard.dev".
std::string Qualified(const std::string& what, const Resource& resource) {
  return what + (resource.group.empty() ? "" : "." + resource.group);
}

Json Details(const Resource& resource, const std::string& name, const std::string& kind) {
  return {{"name", name}, {"group", resource.group}, {"kind", kind}};
}

}  // namespace

ApiResult Failure(int http, const std::string& reason, const std::string& message) {
  return {http,
          {{"kind", "Status"},
           {"apiVersion", "v1"},
           {"metadata", Json::object()},
           {"status", "Failure"},
           {"reason", reason},
           {"message", message},
           {"details", Json::object()},
           {"code", http}},
          {}};
}

ApiResult BadRequest(const std::string& message) { return Failure(400, "BadRequest", message); }

ApiResult NoSuchPath() { return Failure(404, "NotFound", "the server could not find the requested resource"); }

ApiResult MethodNotAllowed() {
  return Failure(405, "MethodNotAllowed", "the server does not allow this method on the requested resource");
}

ApiResult UnsupportedMediaType(const std::string& accepted) {
  return Failure(415, "UnsupportedMediaType",
                 "the body of the request was in an unknown format - accepted media types include: " + accepted);
}

ApiResult NotFound(const Resource& resource, const std::string& name) {
  ApiResult result = Failure(404, "NotFound", Qualified(resource.plural, resource) + " \"" + name + "\" not found");
  result.body["details"] = Details(resource, name, resource.plural);
  return result;
}

ApiResult AlreadyExists(const Resource& resource, const std::string& name, bool going) {
  ApiResult result = Failure(409, "AlreadyExists",
                             (going ? "object is being deleted: " : "") + Qualified(resource.plural, resource) + " \"" +
                                 name + "\" already exists");
  result.body["details"] = Details(resource, name, resource.plural);
  return result;
}

ApiResult Conflict(const Resource& resource, const std::string& name, const std::string& why) {
  ApiResult result =
      Failure(409, "Conflict",
              "Operation cannot be fulfilled on " + Qualified(resource.plural, resource) + " \"" + name + "\": " + why);
  result.body["details"] = Details(resource, name, resource.plural);
  return result;
}

ApiResult Invalid(const Resource& resource, const std::string& name, const std::vector<api::Cause>& causes) {
  std::string text;
  Json list = Json::array();
  for (const api::Cause& cause : causes) {
    const std::string line = (cause.field.empty() ? "" : cause.field + ": ") + cause.message;
    text += (text.empty() ? "" : ", ") + line;
    list.push_back({{"reason", cause.reason}, {"message", cause.message}, {"field", cause.field}});
  }
  if (causes.size() > 1) text = "[" + text + "]";
  ApiResult result =
      Failure(422, "Invalid", Qualified(resource.kind, resource) + " \"" + name + "\" is invalid: " + text);
  result.body["details"] = Details(resource, name, resource.kind);
  result.body["details"]["causes"] = list;
  return result;
}

}  // namespace trainyard::local
