#include "operator/local/api/api_server.h"

#include <httplib.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <list>
#include <thread>

#include "common/json.h"
#include "operator/api/job_file.h"
#include "operator/base/json_access.h"
#include "operator/base/stop_flag.h"
#include "operator/local/api/admission.h"
#include "operator/local/api/discovery.h"
#include "operator/local/api/duplicate_fields.h"
#include "operator/local/api/head_deadline.h"
#include "operator/local/api/pod_log.h"
#include "operator/local/api/protobuf_review.h"
#include "operator/local/api/request_body.h"
#include "operator/local/api/request_options.h"
#include "operator/local/api/review.h"
#include "operator/local/api/route.h"
#include "operator/local/api/scale.h"
#include "operator/local/api/table.h"
#include "operator/local/api/views.h"
#include "operator/local/api/watch_stream.h"

namespace trainyard::local {
namespace {

constexpr size_t kMaxConnections = 512;
// Types that the library does not compress: its compressor holds a stream back until it has enough.
constexpr char kWatchType[] = "application/json;stream=watch", kLogType[] = "application/octet-stream";
// What kubectl wants to know before it applies a `kind: List`, in the only form that it reads: a Document, as protobuf,
// that says {swagger: "2.0"} and describes nothing. Then it leaves the checking to the server.
constexpr char kNoOpenApi2[] =
    "\x0a\x03"
    "2.0";
constexpr char kOpenApi2Type[] = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
// What a stop lets go out of a log before it ends it.
constexpr size_t kLastLogBytes = 1 << 20;

// A thread per connection, bounded: a watch holds its thread for minutes, and a pool of few would
// leave none for the rest. Every thread is joined, because it ends in the TLS library's own clean-up,
// which must be over before the process's.
class ThreadPerConnection : public httplib::TaskQueue {
 public:
  // Counts the connections that have ended in `ended`, which must outlive it.
  explicit ThreadPerConnection(std::atomic<size_t>& ended) : ended_(ended) {}
  void enqueue(std::function<void()> work) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return running_.size() < kMaxConnections || stopping_; });
    if (stopping_) return;
    JoinDone();
    const auto self = running_.emplace(running_.end());
    *self = std::thread([this, self, work = std::move(work)] {
      work();
      const std::lock_guard inner(mutex_);
      done_.splice(done_.end(), running_, self);
      ++ended_;
      changed_.notify_all();
    });
  }
  void shutdown() override {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return running_.empty(); });
    JoinDone();
  }

 private:
  // Waits for no lock and no work: whoever is in done_ has only its own end before it.
  void JoinDone() {
    for (std::thread& thread : done_) thread.join();
    done_.clear();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<size_t>& ended_;
  std::list<std::thread> running_, done_;
  bool stopping_ = false;
};

bool IsProtobuf(const httplib::Request& request) {
  return request.get_header_value("Content-Type").starts_with("application/vnd.kubernetes.protobuf");
}

// Whoever keeps a connection to `port` open, and says nothing, would hold up a stop until the library gives up on it.
// What is being answered is answered.
void EndReading(int port) {
  for (const auto& [file, peer] : ConnectionsTo(port)) shutdown(file, SHUT_RD);
}

// The time that it takes says nothing about where the difference is.
bool SameToken(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

bool WantsMetadata(const httplib::Request& request) {
  return request.get_header_value("Accept").find("as=PartialObjectMetadataList") != std::string::npos;
}

// Of a list.
Json MetadataOf(const Json& list) {
  Json out = {{"apiVersion", "meta.k8s.io/v1"}, {"kind", "PartialObjectMetadataList"}, {"metadata", list["metadata"]}};
  out["items"] = Json::array();
  for (const Json& item : list["items"])
    out["items"].push_back(
        {{"apiVersion", "meta.k8s.io/v1"}, {"kind", "PartialObjectMetadata"}, {"metadata", item["metadata"]}});
  return out;
}

bool WantsTable(const httplib::Request& request) {
  return request.get_header_value("Accept").find("as=Table") != std::string::npos;
}

std::string Parameter(const httplib::Request& request, const char* name) { return request.get_param_value(name); }
bool IsSet(const httplib::Request& request, const char* name) {
  const std::string value = Parameter(request, name);
  return value == "1" || value == "true";
}

Query QueryOf(const httplib::Request& request) {
  return [&request](const std::string& name) {
    const auto [first, last] = request.params.equal_range(name);
    std::vector<std::string> values;
    std::transform(first, last, std::back_inserter(values), [](const auto& parameter) { return parameter.second; });
    return values;
  };
}

Result<LogOptions> LogOptionsOf(const httplib::Request& request, const std::string& container, const std::string& pod,
                                Time now) {
  // Nothing is started twice in a pod: there is no previous one.
  if (IsSet(request, "previous"))
    return Status(Code::kInvalid,
                  "previous terminated container \"" + container + "\" in pod \"" + pod + "\" not found");
  for (const char* other : {"timestamps", "limitBytes"}) {
    const std::string value = Parameter(request, other);
    if (!value.empty() && value != "false")
      return Status(Code::kInvalid, std::string(other) + " is not supported here");
  }
  LogOptions options;
  if (const std::string lines = Parameter(request, "tailLines"); !lines.empty())
    options.tail_lines = std::atoll(lines.c_str());
  if (const std::string seconds = Parameter(request, "sinceSeconds"); !seconds.empty())
    options.since = After(now, -std::atof(seconds.c_str()));
  if (const std::string text = Parameter(request, "sinceTime"); !text.empty()) {
    options.since = ParseTime(text);
    if (!options.since) return Status(Code::kInvalid, "sinceTime: " + text + " is no time");
  }
  return options;
}

}  // namespace

struct ApiServer::Impl {
  Impl(MemoryApi& api, const Clock& clock, Certificate certificate, std::string token,
       std::function<std::filesystem::path(const Json&, const std::string&)> log_path)
      : api(api),
        clock(clock),
        certificate(std::move(certificate)),
        token(std::move(token)),
        log_path(std::move(log_path)),
        server(this->certificate.certificate.get(), this->certificate.key.get()) {}

  ApiResult Accept(const httplib::Request& request) const;
  void Handle(const httplib::Request& request, httplib::Response& response);
  void Serve(const Route& route, const httplib::Request& request, httplib::Response& response);
  void List(const Route& route, const httplib::Request& request, httplib::Response& response);
  void ToTable(const Resource& resource, Json& list) const;
  void Watch(const Route& route, const httplib::Request& request, httplib::Response& response);
  void Logs(const Route& route, const httplib::Request& request, httplib::Response& response);
  std::string Refusal(const Route& route) const;
  static ApiResult Review(const Route& route, const httplib::Request& request);
  ApiResult WriteOnce(const Route& route, const httplib::Request& request);
  ApiResult Write(const Route& route, const httplib::Request& request);
  ApiResult Delete(const Route& route, const httplib::Request& request, const Json& body);
  ApiResult Patch(const Route& route, const httplib::Request& request, const std::string& type);
  static void Answer(const ApiResult& result, httplib::Response& response);

  MemoryApi& api;
  const Clock& clock;
  const Certificate certificate;
  const std::string token;
  const std::function<std::filesystem::path(const Json&, const std::string&)> log_path;
  httplib::SSLServer server;
  std::atomic<bool> stopping{false}, serving{false};
  std::atomic<size_t> ended{0};  // connections
  HeadDeadline heads;
  StopFlag sweeping_ends;
  std::thread thread, sweeper;
  int port = 0;
};

void ApiServer::Impl::Answer(const ApiResult& result, httplib::Response& response) {
  response.status = result.http;
  for (const std::string& warning : result.warnings)
    response.headers.emplace("Warning",
                             "299 - \"" + Json(warning).dump().substr(1, Json(warning).dump().size() - 2) + "\"");
  response.set_content(result.body.dump(-1, ' ', false, Json::error_handler_t::replace), "application/json");
}

// By the head alone, before the body is read: nobody without a token makes this process keep one.
ApiResult ApiServer::Impl::Accept(const httplib::Request& request) const {
  if (!SameToken(request.get_header_value("Authorization"), "Bearer " + token))
    return Failure(401, "Unauthorized", "Unauthorized");
  return CheckHead(request);
}

void ApiServer::Impl::Handle(const httplib::Request& request, httplib::Response& response) {
  if (request.path == "/healthz" || request.path == "/readyz" || request.path == "/livez")
    return response.set_content("ok", "text/plain");
  if (request.method == "GET") {
    if (request.path == "/openapi/v2") return response.set_content(kNoOpenApi2, kOpenApi2Type);
    if (const std::optional<Json> document = DiscoveryDocument(request.path))
      return Answer({200, *document, {}}, response);
  }
  const std::optional<Route> route = ParseRoute(request.path);
  if (!route) return Answer(NoSuchPath(), response);
  Serve(*route, request, response);
}

void ApiServer::Impl::Serve(const Route& route, const httplib::Request& request, httplib::Response& response) {
  if (route.kind == Route::kReview) return Answer(Review(route, request), response);
  if (const std::string refusal = Refusal(route);
      !refusal.empty() && api.Get(*route.resource, route.ns, route.name).ok())
    return Answer(Failure(501, "NotImplemented", refusal), response);
  if (request.method != "GET") {
    ApiResult written = WriteOnce(route, request);
    if (Parameter(request, "fieldValidation") == "Ignore") written.warnings.clear();
    return Answer(written, response);
  }
  if (route.kind == Route::kNamespaces) return Answer(NamespaceAnswer(api, route.name), response);
  if (route.kind == Route::kCoreEvents) {
    ApiResult events = CoreEvents(api, route.ns, Parameter(request, "fieldSelector"));
    if (events.ok() && WantsTable(request)) ToTable(kube::kEvents, events.body);
    return Answer(events, response);
  }
  if (route.name.empty())
    return IsSet(request, "watch") ? Watch(route, request, response) : List(route, request, response);
  if (route.subresource == "log") return Logs(route, request, response);
  if (route.subresource == "scale") return Answer(GetScale(api, *route.resource, route.ns, route.name), response);
  const ApiResult result = api.Get(*route.resource, route.ns, route.name);
  if (result.ok() && !route.subresource.empty() && !(route.subresource == "status" && HasStatus(*route.resource)))
    return Answer(NoSuchPath(), response);
  if (result.ok() && WantsTable(request))
    return Answer({200, MakeTable(*route.resource, {result.body}, "", true, clock.Now()), {}}, response);
  Answer(result, response);
}

void ApiServer::Impl::List(const Route& route, const httplib::Request& request, httplib::Response& response) {
  ListRequest list;
  if (const ApiResult wrong = ReadListOptions(QueryOf(request), list); !wrong.ok()) return Answer(wrong, response);
  ApiResult result = api.List(*route.resource, route.ns, list.options, list.match == "Exact");
  if (result.ok() && WantsTable(request)) ToTable(*route.resource, result.body);
  if (result.ok() && WantsMetadata(request)) result.body = MetadataOf(result.body);
  Answer(result, response);
}

void ApiServer::Impl::ToTable(const Resource& resource, Json& list) const {
  Json table = MakeTable(resource, list["items"].get<std::vector<Json>>(), list["metadata"]["resourceVersion"], true,
                         clock.Now());
  table["metadata"] = list["metadata"];
  list = std::move(table);
}

void ApiServer::Impl::Watch(const Route& route, const httplib::Request& request, httplib::Response& response) {
  WatchRequest options;
  if (const ApiResult wrong = ReadWatchOptions(QueryOf(request), options); !wrong.ok()) return Answer(wrong, response);
  const kube::ListOptions& list = options.list.options;
  const Result<Selector> selector = Selector::Parse(*route.resource, list.label_selector, list.field_selector);
  if (!selector.ok()) return Answer(BadRequest(selector.status().message()), response);
  const auto stream =
      std::make_shared<WatchStream>(api, clock, *route.resource, route.ns, *selector, options, WantsTable(request));
  response.set_chunked_content_provider(kWatchType, [this, stream](size_t, httplib::DataSink& sink) {
    const auto write = [&](const std::string& line) { return sink.write(line.data(), line.size()); };
    if (!stream->Continue(write, stopping)) return false;
    if (!stream->over()) return sink.is_writable();
    sink.done();
    return true;
  });
}

void ApiServer::Impl::Logs(const Route& route, const httplib::Request& request, httplib::Response& response) {
  const ApiResult pod = api.Get(*route.resource, route.ns, route.name);
  if (!pod.ok()) return Answer(pod, response);
  std::string container = Parameter(request, "container");
  if (container.empty()) container = json::Text(pod.body["spec"]["containers"].at(0), "name");
  const Result<LogOptions> options = LogOptionsOf(request, container, route.name, clock.Now());
  if (!options.ok()) return Answer(BadRequest(options.status().message()), response);
  const Result<LogSource> source = OpenLog(log_path(pod.body, container), pod.body, container, *options);
  if (!source.ok()) return Answer(BadRequest(source.status().message()), response);
  auto log = std::make_shared<LogSource>(*source);
  const bool follow = IsSet(request, "follow");
  response.set_chunked_content_provider(kLogType, [this, log, follow, ns = route.ns, name = route.name, container,
                                                   left = kLastLogBytes](size_t, httplib::DataSink& sink) mutable {
    // Asked before reading: what is written before the end is then read.
    const bool stops = stopping;
    const bool ended = !follow || stops || !ContainerRuns(api.Get(kube::kPods, ns, name).body, container);
    const std::string text = log->Read();
    if (!text.empty() && !sink.write(text.data(), text.size())) return false;
    if (stops) left -= std::min(left, text.size());
    if ((text.empty() && ended) || left == 0) {
      sink.done();
      return true;
    }
    if (text.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return sink.is_writable();
  });
}

// Why what a cluster's node does for kubectl is not done here, and what to do instead; empty for everything else.
std::string ApiServer::Impl::Refusal(const Route& route) const {
  if (!route.resource || *route.resource != kube::kPods) return "";
  const Json pod = api.Get(*route.resource, route.ns, route.name).body;
  const std::string folder = log_path(pod, "any").parent_path().string();
  const std::string here = "a pod on one machine is processes of yours: ";
  if (route.subresource == "exec")
    return here + "run the command in a terminal; " + folder + "/processes names its processes, and " + folder +
           "/volumes holds its own volumes (kubectl cp: copy from there)";
  if (route.subresource == "attach") return here + "kubectl logs -f " + route.name + " follows its output";
  if (route.subresource == "portforward")
    return here + "connect to its address, " + json::Text(json::Field(pod, "status"), "podIP") + ", directly";
  if (route.subresource == "ephemeralcontainers")
    return here + "a debugger can be attached to those in " + folder + "/processes";
  if (route.subresource == "eviction") return here + "kubectl delete pod " + route.name + " ends it within its grace";
  return "";
}

ApiResult ApiServer::Impl::Review(const Route& route, const httplib::Request& request) {
  if (request.method != "POST") return MethodNotAllowed();
  Json body = IsProtobuf(request) ? ReviewFromProtobuf(request.body).value_or(Json()) : ParseJson(request.body);
  return body.is_object() ? AccessReview(route.name, std::move(body)) : BadRequest("the body is no object");
}

// With what is wrong with the text itself: fields that stand twice.
ApiResult ApiServer::Impl::WriteOnce(const Route& route, const httplib::Request& request) {
  const bool json = request.get_header_value("Content-Type").find("json") != std::string::npos;
  std::vector<std::string> twice;
  if (json && !request.body.empty() && !ParseJson(request.body).is_discarded()) twice = DuplicateFields(request.body);
  for (std::string& field : twice) field = "duplicate field \"" + field + "\"";
  if (!twice.empty() && Parameter(request, "fieldValidation") == "Strict")
    return StrictDecodingError(route.resource ? *route.resource : kube::kPods, twice);
  ApiResult result = Write(route, request);
  result.warnings.insert(result.warnings.begin(), twice.begin(), twice.end());
  return result;
}

ApiResult ApiServer::Impl::Write(const Route& route, const httplib::Request& request) {
  if (route.kind != Route::kObjects) return Failure(405, "MethodNotAllowed", "this resource can only be read here");
  if (request.method == "PATCH") return Patch(route, request, request.get_header_value("Content-Type"));
  if (IsProtobuf(request) && !request.body.empty()) return UnsupportedMediaType("application/json, application/yaml");
  const bool yaml = request.get_header_value("Content-Type").find("yaml") != std::string::npos;
  Json body = Json::object();
  if (yaml) {
    Result<Json> parsed = trainyard::api::YamlToJson(request.body, "body");
    if (!parsed.ok()) return BadRequest(parsed.status().message());
    body = std::move(*parsed);
  } else if (!request.body.empty()) {
    body = ParseJson(request.body);
  }
  if (body.is_discarded()) return BadRequest("the body is no JSON, or nests deeper than 100");
  if (request.method == "DELETE" && route.subresource.empty()) return Delete(route, request, body);
  WriteRequest write;
  const bool create = request.method == "POST";
  if (ApiResult wrong = ReadWriteOptions(QueryOf(request), create ? "CreateOptions" : "UpdateOptions", write);
      !wrong.ok())
    return wrong;
  if (create && !json::Text(json::Field(body, "metadata"), "resourceVersion").empty())
    return BadRequest("resourceVersion should not be set on objects to be created");
  if (create && route.name.empty()) return api.Create(*route.resource, route.ns, std::move(body), write);
  if (request.method != "PUT" || route.name.empty()) return MethodNotAllowed();
  if (route.subresource == "scale") return PutScale(api, *route.resource, route.ns, route.name, body, write);
  return api.Replace(*route.resource, route.ns, route.name, route.subresource, std::move(body), write);
}

ApiResult ApiServer::Impl::Delete(const Route& route, const httplib::Request& request, const Json& body) {
  DeleteRequest options;
  if (ApiResult wrong = ReadDeleteOptions(QueryOf(request), body, options); !wrong.ok()) return wrong;
  if (!route.name.empty()) return api.Delete(*route.resource, route.ns, route.name, options);
  if (route.ns.empty()) return MethodNotAllowed();
  ListRequest list;
  if (ApiResult wrong = ReadListOptions(QueryOf(request), list); !wrong.ok()) return wrong;
  ApiResult all = api.List(*route.resource, route.ns, list.options);
  if (!all.ok()) return all;
  for (const Json& object : all.body["items"]) {
    options.uid = json::Text(object["metadata"], "uid");
    api.Delete(*route.resource, route.ns, json::Text(object["metadata"], "name"), options);
  }
  return all;
}

ApiResult ApiServer::Impl::Patch(const Route& route, const httplib::Request& request, const std::string& type) {
  const bool custom = *route.resource == kube::kTrainingJobs;
  if (route.name.empty()) return MethodNotAllowed();
  WriteRequest write;
  if (ApiResult wrong = ReadWriteOptions(QueryOf(request), "PatchOptions", write); !wrong.ok()) return wrong;
  if (type.starts_with("application/apply-patch+yaml")) {
    const Result<Json> parsed = trainyard::api::YamlToJson(request.body, "body");
    if (!parsed.ok()) return BadRequest(parsed.status().message());
    if (write.manager.empty())
      return Invalid({"meta.k8s.io", "v1", "", "PatchOptions"}, "",
                     {{"FieldValueRequired", "Required value: is required for apply patch", "fieldManager", "", ""}});
    return api.Patch(*route.resource, route.ns, route.name, route.subresource, PatchType::kApply, *parsed, write);
  }
  const bool json = type.starts_with("application/json-patch+json");
  // A server has no strategy for the lists of a custom resource.
  const bool strategic = type.starts_with("application/strategic-merge-patch+json") && !custom;
  if (!json && !strategic && !type.starts_with("application/merge-patch+json"))
    return UnsupportedMediaType(std::string("application/json-patch+json, application/merge-patch+json, ") +
                                (custom ? "" : "application/strategic-merge-patch+json, ") +
                                "application/apply-patch+yaml");
  const Json body = ParseJson(request.body);
  if (body.is_discarded()) return BadRequest("the body is no JSON, or nests deeper than 100");
  const PatchType kind = json ? PatchType::kJson : strategic ? PatchType::kStrategic : PatchType::kMerge;
  if (route.subresource == "scale") return PatchScale(api, *route.resource, route.ns, route.name, kind, body, write);
  return api.Patch(*route.resource, route.ns, route.name, route.subresource, kind, body, write);
}

ApiServer::ApiServer(MemoryApi& api, const Clock& clock, Certificate certificate, std::string token,
                     std::function<std::filesystem::path(const Json&, const std::string&)> log_path)
    : impl_(std::make_unique<Impl>(api, clock, std::move(certificate), std::move(token), std::move(log_path))) {
  httplib::SSLServer& server = impl_->server;
  server.new_task_queue = [impl = impl_.get()] { return new ThreadPerConnection(impl->ended); };
  server.set_keep_alive_max_count(1000000);
  server.set_keep_alive_timeout(20);
  server.set_tcp_nodelay(true);
  server.set_payload_max_length(kBodyBytes);
  // Not two servers on one port, which the library's own options would allow.
  server.set_socket_options([](socket_t socket) {
    const int on = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  });
  LimitHeads(server.ssl_context());
  server.set_pre_routing_handler([impl = impl_.get()](const httplib::Request& request, httplib::Response& response) {
    const ApiResult accepted = impl->Accept(request);
    if (!accepted.ok()) AnswerAndClose(accepted, response);
    EndOfHead();
    impl->heads.Answering(IncomingSocket());
    return accepted.ok() ? httplib::Server::HandlerResponse::Unhandled : httplib::Server::HandlerResponse::Handled;
  });
  server.set_logger([impl = impl_.get()](const httplib::Request&, const httplib::Response&) {
    impl->heads.Answered(IncomingSocket());
  });
  // Who asks before it sends the body is told by the head as well.
  server.set_expect_100_continue_handler(
      [impl = impl_.get()](const httplib::Request& request, httplib::Response& response) {
        const ApiResult accepted = impl->Accept(request);
        if (accepted.ok()) return 100;
        AnswerAndClose(accepted, response);
        response.set_header("Content-Length", std::to_string(response.content_length_));
        return accepted.http;
      });
  server.Get("/.*", [impl = impl_.get()](const httplib::Request& request, httplib::Response& response) {
    impl->Handle(request, response);
  });
  const auto handle = [impl = impl_.get()](const httplib::Request& head, httplib::Response& response,
                                           const httplib::ContentReader& read) {
    httplib::Request request = head;
    if (const ApiResult whole = ReadBody(head, read, request.body); !whole.ok()) return AnswerAndClose(whole, response);
    impl->Handle(request, response);
  };
  server.Post("/.*", handle).Put("/.*", handle).Patch("/.*", handle).Delete("/.*", handle);
}

ApiServer::~ApiServer() { Stop(); }

Status ApiServer::Start(int port) {
  if (!impl_->server.is_valid()) return Status(Code::kInternal, "TLS cannot be set up");
  if (port == 0) {
    impl_->port = impl_->server.bind_to_any_port("127.0.0.1");
  } else {
    impl_->port = impl_->server.bind_to_port("127.0.0.1", port) ? port : -1;
  }
  if (impl_->port <= 0)
    return Status(Code::kUnavailable,
                  "port " + std::to_string(port) + " of 127.0.0.1 is in use; choose another with --serve");
  impl_->serving = true;
  impl_->thread = std::thread([impl = impl_.get()] {
    impl->server.listen_after_bind();
    impl->serving = false;
  });
  impl_->sweeper = std::thread([impl = impl_.get()] {
    while (impl->sweeping_ends.Sleep(1)) impl->heads.Sweep(impl->port);
  });
  while (!impl_->server.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return FirstRequest();
}

// One request, alone: it proves that the server answers, and the library's own tables are then made
// before two connections can race for them.
Status ApiServer::FirstRequest() {
  httplib::SSLClient client("127.0.0.1", impl_->port);
  client.enable_server_certificate_verification(false);  // it is asked nothing and told nothing
  client.set_connection_timeout(5);
  client.set_read_timeout(5);
  if (!client.Get("/healthz")) return Status(Code::kInternal, "the API does not answer on its own port");
  client.stop();
  for (int i = 0; i < 5000 && impl_->ended == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return Status::Ok();
}

void ApiServer::Stop() {
  impl_->stopping = true;
  impl_->api.WakeAll();
  impl_->server.stop();
  // Again and again: one may be taken up while this looks.
  while (impl_->serving) {
    EndReading(impl_->port);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (impl_->thread.joinable()) impl_->thread.join();
  impl_->sweeping_ends.Set();
  if (impl_->sweeper.joinable()) impl_->sweeper.join();
}

int ApiServer::port() const { return impl_->port; }

}  // namespace trainyard::local
