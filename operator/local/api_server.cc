#include "operator/local/api_server.h"

#include <httplib.h>

#include <atomic>
#include <condition_variable>
#include <fstream>
#include <iterator>
#include <list>
#include <thread>

#include "common/json.h"
#include "operator/api/job_file.h"
#include "operator/base/json_access.h"
#include "operator/local/discovery.h"
#include "operator/local/pod_log.h"
#include "operator/local/route.h"
#include "operator/local/table.h"
#include "operator/local/views.h"

namespace trainyard::local {
namespace {

constexpr size_t kMaxConnections = 512;
// Types that the library does not compress: its compressor holds a stream back until it has enough.
constexpr char kWatchType[] = "application/json;stream=watch", kLogType[] = "application/octet-stream";
constexpr double kWatchTick = 0.5, kBookmarkSeconds = 10;

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

// The time that it takes says nothing about where the difference is.
bool SameToken(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

bool WantsTable(const httplib::Request& request) {
  return request.get_header_value("Accept").find("as=Table") != std::string::npos;
}

std::string Parameter(const httplib::Request& request, const char* name) { return request.get_param_value(name); }
bool IsSet(const httplib::Request& request, const char* name) {
  const std::string value = Parameter(request, name);
  return value == "1" || value == "true";
}

WriteRequest WriteRequestOf(const httplib::Request& request) {
  return {.dry_run = Parameter(request, "dryRun") == "All",
          .strict = Parameter(request, "fieldValidation") == "Strict",
          .manager = Parameter(request, "fieldManager"),
          .force = IsSet(request, "force")};
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

  void Handle(const httplib::Request& request, httplib::Response& response);
  void Serve(const Route& route, const httplib::Request& request, httplib::Response& response);
  void List(const Route& route, const httplib::Request& request, httplib::Response& response);
  void ToTable(const Resource& resource, Json& list) const;
  void Watch(const Route& route, const httplib::Request& request, httplib::Response& response);
  void Logs(const Route& route, const httplib::Request& request, httplib::Response& response);
  ApiResult Write(const Route& route, const httplib::Request& request);
  ApiResult Patch(const Route& route, const httplib::Request& request, const std::string& type);
  static void Answer(const ApiResult& result, httplib::Response& response);

  MemoryApi& api;
  const Clock& clock;
  const Certificate certificate;
  const std::string token;
  const std::function<std::filesystem::path(const Json&, const std::string&)> log_path;
  httplib::SSLServer server;
  std::atomic<bool> stopping{false};
  std::atomic<size_t> ended{0};  // connections
  std::thread thread;
  int port = 0;
};

void ApiServer::Impl::Answer(const ApiResult& result, httplib::Response& response) {
  response.status = result.http;
  for (const std::string& warning : result.warnings)
    response.headers.emplace("Warning",
                             "299 - \"" + Json(warning).dump().substr(1, Json(warning).dump().size() - 2) + "\"");
  response.set_content(result.body.dump(-1, ' ', false, Json::error_handler_t::replace), "application/json");
}

void ApiServer::Impl::Handle(const httplib::Request& request, httplib::Response& response) {
  if (!SameToken(request.get_header_value("Authorization"), "Bearer " + token))
    return Answer(Failure(401, "Unauthorized", "Unauthorized"), response);
  if (request.path == "/healthz" || request.path == "/readyz" || request.path == "/livez")
    return response.set_content("ok", "text/plain");
  if (request.method == "GET") {
    if (const std::optional<Json> document = DiscoveryDocument(request.path))
      return Answer({200, *document, {}}, response);
  }
  const std::optional<Route> route = ParseRoute(request.path);
  if (!route) return Answer(Failure(404, "NotFound", "the server could not find the requested resource"), response);
  Serve(*route, request, response);
}

void ApiServer::Impl::Serve(const Route& route, const httplib::Request& request, httplib::Response& response) {
  if (request.method != "GET") return Answer(Write(route, request), response);
  if (route.kind == Route::kNamespaces) return Answer(NamespaceAnswer(api, route.name), response);
  if (route.kind == Route::kCoreEvents) {
    ApiResult events = CoreEvents(api, route.ns, Parameter(request, "fieldSelector"));
    if (events.ok() && WantsTable(request)) ToTable(kube::kEvents, events.body);
    return Answer(events, response);
  }
  if (route.name.empty())
    return IsSet(request, "watch") ? Watch(route, request, response) : List(route, request, response);
  if (route.subresource == "log") return Logs(route, request, response);
  const ApiResult result = api.Get(*route.resource, route.ns, route.name);
  if (result.ok() && WantsTable(request))
    return Answer({200, MakeTable(*route.resource, {result.body}, "", true, clock.Now()), {}}, response);
  Answer(result, response);
}

void ApiServer::Impl::List(const Route& route, const httplib::Request& request, httplib::Response& response) {
  const kube::ListOptions options{.label_selector = Parameter(request, "labelSelector"),
                                  .field_selector = Parameter(request, "fieldSelector"),
                                  .resource_version = Parameter(request, "resourceVersion"),
                                  .limit = std::atoll(Parameter(request, "limit").c_str()),
                                  .continue_token = Parameter(request, "continue")};
  ApiResult result = api.List(*route.resource, route.ns, options);
  if (result.ok() && WantsTable(request)) ToTable(*route.resource, result.body);
  Answer(result, response);
}

void ApiServer::Impl::ToTable(const Resource& resource, Json& list) const {
  Json table = MakeTable(resource, list["items"].get<std::vector<Json>>(), list["metadata"]["resourceVersion"], true,
                         clock.Now());
  table["metadata"] = list["metadata"];
  list = std::move(table);
}

void ApiServer::Impl::Watch(const Route& route, const httplib::Request& request, httplib::Response& response) {
  const Result<Selector> selector =
      Selector::Parse(Parameter(request, "labelSelector"), Parameter(request, "fieldSelector"));
  if (!selector.ok()) return Answer(BadRequest(selector.status().message()), response);
  struct State {
    uint64_t since = 0;
    std::vector<kube::WatchEvent> first;
    Time end, last_sent;
    bool headers = true, table = false, bookmarks = false, initial_bookmark = false;
  };
  auto state = std::make_shared<State>();
  const std::string version = Parameter(request, "resourceVersion"), seconds = Parameter(request, "timeoutSeconds");
  state->table = WantsTable(request);
  state->bookmarks = IsSet(request, "allowWatchBookmarks");
  state->last_sent = clock.Now();
  state->end = After(clock.Now(), seconds.empty() ? 1800 : std::clamp(std::atof(seconds.c_str()), 1.0, 7200.0));
  state->initial_bookmark = IsSet(request, "sendInitialEvents");
  if (version.empty() || version == "0" || state->initial_bookmark) {
    const ApiResult all = api.List(
        *route.resource, route.ns,
        {.label_selector = Parameter(request, "labelSelector"), .field_selector = Parameter(request, "fieldSelector")});
    state->since = std::strtoull(all.body["metadata"]["resourceVersion"].get<std::string>().c_str(), nullptr, 10);
    for (const Json& object : all.body["items"]) state->first.push_back({"ADDED", object});
  } else {
    state->since = std::strtoull(version.c_str(), nullptr, 10);
  }
  const Resource resource = *route.resource;
  const auto send = [this, state, resource](httplib::DataSink& sink, const kube::WatchEvent& event) {
    Json object = event.object;
    if (state->table && event.type != "ERROR" && event.type != "BOOKMARK") {
      object =
          MakeTable(resource, {event.object}, event.object["metadata"]["resourceVersion"], state->headers, clock.Now());
      state->headers = false;
    }
    const std::string line =
        Json{{"type", event.type}, {"object", object}}.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    state->last_sent = clock.Now();
    return sink.write(line.data(), line.size());
  };
  const auto bookmark = [state, resource](bool initial) {
    Json object = {{"kind", resource.kind},
                   {"apiVersion", resource.ApiVersion()},
                   {"metadata", {{"resourceVersion", std::to_string(state->since)}}}};
    if (initial) object["metadata"]["annotations"] = {{"k8s.io/initial-events-end", "true"}};
    return kube::WatchEvent{"BOOKMARK", object};
  };
  response.set_chunked_content_provider(kWatchType, [this, state, resource, ns = route.ns, selector = *selector, send,
                                                     bookmark](size_t, httplib::DataSink& sink) {
    for (const kube::WatchEvent& event : state->first) {
      if (!send(sink, event)) return false;
    }
    state->first.clear();
    if (state->initial_bookmark && !send(sink, bookmark(true))) return false;
    state->initial_bookmark = false;
    if (stopping || clock.Now() >= state->end) {
      sink.done();
      return true;
    }
    std::vector<kube::WatchEvent> events;
    if (!api.Next(resource, ns, selector, state->since, kWatchTick, events)) {
      send(sink, {"ERROR", Failure(410, "Expired", "too old resource version").body});
      sink.done();
      return true;
    }
    for (const kube::WatchEvent& event : events) {
      if (!send(sink, event)) return false;
    }
    if (state->bookmarks && SecondsBetween(state->last_sent, clock.Now()) >= kBookmarkSeconds)
      return send(sink, bookmark(false));
    return sink.is_writable();
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
  response.set_chunked_content_provider(
      kLogType, [this, log, follow, ns = route.ns, name = route.name, container](size_t, httplib::DataSink& sink) {
        // Asked before reading: what is written before the end is then read.
        const bool ended = !follow || stopping || !ContainerRuns(api.Get(kube::kPods, ns, name).body, container);
        const std::string text = log->Read();
        if (!text.empty() && !sink.write(text.data(), text.size())) return false;
        if (text.empty() && ended) {
          sink.done();
          return true;
        }
        if (text.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
        return sink.is_writable();
      });
}

ApiResult ApiServer::Impl::Write(const Route& route, const httplib::Request& request) {
  if (route.kind != Route::kObjects) return Failure(405, "MethodNotAllowed", "this resource can only be read here");
  if (request.method == "PATCH") return Patch(route, request, request.get_header_value("Content-Type"));
  Json body = request.body.empty() ? Json::object() : ParseJson(request.body);
  if (body.is_discarded()) return BadRequest("the body is no JSON, or nests deeper than 100");
  const WriteRequest write = WriteRequestOf(request);
  if (request.method == "POST" && route.name.empty())
    return api.Create(*route.resource, route.ns, std::move(body), write);
  if (request.method == "PUT" && !route.name.empty())
    return api.Replace(*route.resource, route.ns, route.name, route.subresource, std::move(body), write);
  if (request.method == "DELETE" && !route.name.empty()) {
    DeleteRequest options{.dry_run = write.dry_run || json::Field(body, "dryRun") == Json{"All"}};
    options.uid = json::Text(json::Field(body, "preconditions"), "uid");
    options.resource_version = json::Text(json::Field(body, "preconditions"), "resourceVersion");
    options.propagation = json::Text(body, "propagationPolicy");
    if (const Json grace = json::Field(body, "gracePeriodSeconds"); grace.is_number_integer())
      options.grace_seconds = grace.get<int64_t>();
    return api.Delete(*route.resource, route.ns, route.name, options);
  }
  return Failure(405, "MethodNotAllowed", "the server does not allow this method on the requested resource");
}

ApiResult ApiServer::Impl::Patch(const Route& route, const httplib::Request& request, const std::string& type) {
  const bool custom = *route.resource == kube::kTrainingJobs;
  PatchType kind = PatchType::kMerge;
  Json body;
  if (type.starts_with("application/apply-patch+yaml")) {
    kind = PatchType::kApply;
    Result<Json> parsed = trainyard::api::YamlToJson(request.body, "body");
    if (!parsed.ok()) return BadRequest(parsed.status().message());
    if (Parameter(request, "fieldManager").empty())
      return Failure(422, "Invalid", "fieldManager: Required value: is required for apply patch");
    body = std::move(*parsed);
  } else {
    if (type.starts_with("application/json-patch+json")) kind = PatchType::kJson;
    // A server has no strategy for the lists of a custom resource.
    if (type.starts_with("application/strategic-merge-patch+json") && custom)
      return Failure(415, "UnsupportedMediaType",
                     "the body of the request was in an unknown format - accepted media types include: "
                     "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml");
    body = ParseJson(request.body);
    if (body.is_discarded()) return BadRequest("the body is no JSON, or nests deeper than 100");
  }
  return api.Patch(*route.resource, route.ns, route.name, route.subresource, kind, body, WriteRequestOf(request));
}

ApiServer::ApiServer(MemoryApi& api, const Clock& clock, Certificate certificate, std::string token,
                     std::function<std::filesystem::path(const Json&, const std::string&)> log_path)
    : impl_(std::make_unique<Impl>(api, clock, std::move(certificate), std::move(token), std::move(log_path))) {
  httplib::SSLServer& server = impl_->server;
  server.new_task_queue = [impl = impl_.get()] { return new ThreadPerConnection(impl->ended); };
  server.set_keep_alive_max_count(1000000);
  server.set_keep_alive_timeout(20);
  server.set_tcp_nodelay(true);
  server.set_payload_max_length(8 << 20);
  // Not two servers on one port, which the library's own options would allow.
  server.set_socket_options([](socket_t socket) {
    const int on = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  });
  const auto handle = [impl = impl_.get()](const httplib::Request& request, httplib::Response& response) {
    impl->Handle(request, response);
  };
  server.Get("/.*", handle).Post("/.*", handle).Put("/.*", handle).Patch("/.*", handle).Delete("/.*", handle);
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
  impl_->thread = std::thread([impl = impl_.get()] { impl->server.listen_after_bind(); });
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
  if (impl_->thread.joinable()) impl_->thread.join();
}

int ApiServer::port() const { return impl_->port; }

}  // namespace trainyard::local
