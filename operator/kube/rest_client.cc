#include "operator/kube/rest_client.h"

#include <cctype>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "common/json.h"
#include "operator/base/json_access.h"
#include "operator/kube/json_items.h"
#include "operator/kube/json_lines.h"
#include "operator/kube/parse_object.h"

namespace trainyard::kube {
namespace {

// How long after its timeoutSeconds a server may take to end a watch.
constexpr double kLateSeconds = 30;
// Of one object, wherever it comes: etcd takes 1.5 MiB, which may be configured.
constexpr size_t kMaxObjectBytes = 16 << 20;

// A server that does not know the first form gives the second.
constexpr char kMetadataOnly[] = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

std::string Encoded(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) || std::strchr("-._~/", c)) {
      out += c;
    } else {
      char code[4];
      std::snprintf(code, sizeof code, "%%%02X", static_cast<unsigned char>(c));
      out += code;
    }
  }
  return out;
}

class Query {
 public:
  Query& Add(const char* key, const std::string& value) {
    if (!value.empty()) text_ += (text_.empty() ? "?" : "&") + std::string(key) + "=" + Encoded(value);
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

Status StatusOf(const Answer& answer) {
  Status status = StatusFromApi(answer.code, ParseJson(answer.body));
  // Digits (RFC 9110, 10.2.3). The other form of the field, a date, is not used by API servers.
  uint64_t seconds = 0;
  const char* end = answer.retry_after.data() + answer.retry_after.size();
  if (std::from_chars(answer.retry_after.data(), end, seconds).ptr == end && seconds > 0)
    status.set_retry_after_seconds(static_cast<double>(seconds));
  return status;
}

}  // namespace

Result<Answer> RestClient::Exchange(const std::string& method, const std::string& target,
                                    const std::string& content_type, const std::string& body) {
  Result<Answer> answer = transport_.Send(method, target, content_type, body);
  if (!answer.ok()) return answer.status().With(method + " " + target);
  if (answer->code >= 300) return StatusOf(*answer);
  return answer;
}

Result<Json> RestClient::Send(const std::string& method, const std::string& target, const std::string& content_type,
                              const std::string& body, const FieldPaths& fields) {
  const Result<Answer> answer = Exchange(method, target, content_type, body);
  if (!answer.ok()) return answer.status();
  Json object = ObjectParser(0, fields).Parse(answer->body);
  if (object.is_discarded()) return Status(Code::kInternal, method + " " + target + ": the answer is no JSON");
  return object;
}

Result<Json> RestClient::Get(const Resource& resource, const std::string& ns, const std::string& name,
                             const FieldPaths& fields) {
  return Send("GET", resource.Path(ns) + "/" + Encoded(name), "", "", fields);
}

Result<ListEnd> RestClient::List(const Resource& resource, const std::string& ns, const ListOptions& options,
                                 const std::function<void(const Json&)>& on_item) {
  // A version with a limit and no word about it is the state of then, to the server, and a watch from there is as old
  // as the one that was refused (KEP-2523).
  const bool of_a_version = !options.resource_version.empty() && options.resource_version != "0";
  Query query;
  query.Add("labelSelector", options.label_selector)
      .Add("fieldSelector", options.field_selector)
      .Add("resourceVersion", options.resource_version)
      .Add("resourceVersionMatch", of_a_version ? "NotOlderThan" : "")
      .Add("continue", options.continue_token);
  if (options.limit > 0) query.Add("limit", std::to_string(options.limit));
  const std::string target = resource.Path(ns) + query.text();
  JsonItems items(kMaxObjectBytes, options.fields);
  Status failure;
  const Result<Answer> answer =
      transport_.Fetch(target, options.metadata_only ? kMetadataOnly : kJson, [&](const char* data, size_t size) {
        failure = items.Feed(data, size, on_item);
        return failure.ok();
      });
  if (!failure.ok()) return failure.With("GET " + target);
  if (!answer.ok()) return answer.status().With("GET " + target);
  if (answer->code != 200) return StatusOf(*answer);
  const Result<Json> around = items.End();
  if (!around.ok()) return around.status().With("GET " + target);
  const Json& metadata = json::Field(*around, "metadata");
  return ListEnd{json::Text(metadata, "resourceVersion"), json::Text(metadata, "continue")};
}

namespace {

// Words of others, in a condition, may be no UTF-8.
std::string Dumped(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string WriteQuery(const WriteOptions& options) {
  Query query;
  query.Add("fieldManager", kFieldManager)
      .Add("dryRun", options.dry_run ? "All" : "")
      .Add("fieldValidation", options.strict ? "Strict" : "");
  return query.text();
}

}  // namespace

Result<Json> RestClient::Create(const Resource& resource, const std::string& ns, const Json& object,
                                const WriteOptions& options) {
  const std::string target = resource.Path(ns) + WriteQuery(options);
  if (options.answer) return Send("POST", target, "application/json", Dumped(object), options.fields);
  const Status status = Exchange("POST", target, "application/json", Dumped(object)).status();
  return status.ok() ? Result<Json>(Json()) : Result<Json>(status);
}

Result<Json> RestClient::MergePatch(const Resource& resource, const std::string& ns, const std::string& name,
                                    const std::string& subresource, const Json& patch, const WriteOptions& options) {
  const std::string path = resource.Path(ns) + "/" + Encoded(name) + (subresource.empty() ? "" : "/" + subresource);
  return Send("PATCH", path + WriteQuery(options), "application/merge-patch+json", Dumped(patch), options.fields);
}

Status RestClient::Delete(const Resource& resource, const std::string& ns, const std::string& name,
                          const DeleteOptions& options) {
  Json body = {{"kind", "DeleteOptions"}, {"apiVersion", "v1"}, {"propagationPolicy", "Background"}};
  if (!options.uid.empty()) body["preconditions"]["uid"] = options.uid;
  if (!options.resource_version.empty()) body["preconditions"]["resourceVersion"] = options.resource_version;
  if (options.grace_seconds) body["gracePeriodSeconds"] = *options.grace_seconds;
  return Exchange("DELETE", resource.Path(ns) + "/" + Encoded(name), "application/json", body.dump()).status();
}

Status RestClient::Watch(const Resource& resource, const std::string& ns, const WatchOptions& options,
                         const std::function<bool(WatchEvent)>& on_event, const StopFlag& stop) {
  Query query;
  query.Add("watch", "1")
      .Add("allowWatchBookmarks", "true")
      .Add("labelSelector", options.label_selector)
      .Add("resourceVersion", options.resource_version)
      .Add("sendInitialEvents", options.initial_events ? "true" : "")
      .Add("resourceVersionMatch", options.initial_events ? "NotOlderThan" : "")
      .Add("timeoutSeconds", std::to_string(options.timeout_seconds));
  bool ended = false;
  Status failure;
  JsonLines lines(kMaxObjectBytes, options.fields);
  const auto on_data = [&](const char* data, size_t size) {
    failure = lines.Feed(data, size, [&](Json event) {
      if (ended || !json::Field(event, "object").is_object()) return;
      ended = !on_event({json::Text(event, "type"), std::move(event["object"])});
    });
    return failure.ok() && !ended;
  };
  const Result<Answer> answer = transport_.Stream(
      resource.Path(ns) + query.text(), options.timeout_seconds + kLateSeconds, stop,
      {.accepted = options.accepted, .silent = options.silent, .silent_seconds = options.silent_seconds}, on_data);
  if (stop || ended) return Status::Ok();
  if (!failure.ok()) return failure;
  if (!answer.ok()) return answer.status();
  return answer->code == 200 ? Status::Ok() : StatusOf(*answer);
}

}  // namespace trainyard::kube
