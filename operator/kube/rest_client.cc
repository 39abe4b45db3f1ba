#include "operator/kube/rest_client.h"

#include <httplib.h>
#include <netinet/tcp.h>
#include <openssl/pem.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>

#include "common/json.h"
#include "operator/base/json_access.h"
#include "operator/kube/json_lines.h"

namespace trainyard::kube {
namespace {

constexpr int kConnectSeconds = 5, kReadSeconds = 30, kUserTimeoutMs = 20000;
constexpr int kThrottleRetries = 10;
constexpr double kTokenSeconds = 60;
constexpr int kMaxConnections = 16;
constexpr size_t kMaxEventBytes = 64 << 20;

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

void SetSocketOptions(socket_t socket) {
  const int on = 1, idle = 15, interval = 5, count = 3, timeout = kUserTimeoutMs;
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
  setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof timeout);
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

X509_STORE* StoreOf(const std::string& pem) {
  X509_STORE* store = X509_STORE_new();
  BIO* bio = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  while (X509* certificate = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr)) {
    X509_STORE_add_cert(store, certificate);
    X509_free(certificate);
  }
  BIO_free(bio);
  return store;
}

Status NoAnswer(const std::string& what, httplib::Error error) {
  return Status(Code::kUnavailable, what + ": " + httplib::to_string(error));
}

}  // namespace

struct RestClient::Request {
  std::string method, path, body, content_type;
};

RestClient::RestClient(Endpoint endpoint, const Clock& clock) : endpoint_(std::move(endpoint)), clock_(clock) {}
RestClient::~RestClient() = default;

std::unique_ptr<httplib::SSLClient> RestClient::Connect() const {
  std::unique_ptr<httplib::SSLClient> client;
  if (endpoint_.certificate_pem.empty()) {
    client = std::make_unique<httplib::SSLClient>(endpoint_.host, endpoint_.port);
  } else {
    BIO* bio = BIO_new_mem_buf(endpoint_.certificate_pem.data(), static_cast<int>(endpoint_.certificate_pem.size()));
    X509* certificate = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
    BIO_free(bio);
    bio = BIO_new_mem_buf(endpoint_.key_pem.data(), static_cast<int>(endpoint_.key_pem.size()));
    EVP_PKEY* key = PEM_read_bio_PrivateKey(bio, nullptr, nullptr, nullptr);
    BIO_free(bio);
    client = std::make_unique<httplib::SSLClient>(endpoint_.host, endpoint_.port, certificate, key);
    X509_free(certificate);
    EVP_PKEY_free(key);
  }
  client->set_ca_cert_store(StoreOf(endpoint_.ca_pem));
  // Without a path of its own the library adds the system's authorities to ours: any of them could then
  // speak for the server. This one does not exist.
  if (!endpoint_.ca_pem.empty()) client->set_ca_cert_path("", "/dev/null/no-authorities");
  client->enable_server_certificate_verification(true);
  client->set_connection_timeout(kConnectSeconds);
  client->set_read_timeout(kReadSeconds);
  client->set_write_timeout(kReadSeconds);
  client->set_keep_alive(true);
  client->set_socket_options(SetSocketOptions);
  client->set_url_encode(false);
  return client;
}

// One connection of the pool, given back at the end unless it broke.
class RestClient::Borrowed {
 public:
  explicit Borrowed(RestClient& owner) : owner_(owner) {
    {
      const MutexLock lock(owner_.mutex_);
      while (owner_.borrowed_ >= kMaxConnections) owner_.returned_.Wait(owner_.mutex_);
      ++owner_.borrowed_;
      if (!owner_.idle_.empty()) {
        client_ = std::move(owner_.idle_.back());
        owner_.idle_.pop_back();
      }
    }
    if (!client_) client_ = owner_.Connect();
  }
  ~Borrowed() {
    const MutexLock lock(owner_.mutex_);
    --owner_.borrowed_;
    if (client_) owner_.idle_.push_back(std::move(client_));
    owner_.returned_.NotifyOne();
  }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;

  httplib::SSLClient& operator*() { return *client_; }
  void Drop() { client_.reset(); }

 private:
  RestClient& owner_;
  std::unique_ptr<httplib::SSLClient> client_;
};

std::string RestClient::Token(bool refused) {
  if (endpoint_.token_file.empty()) return endpoint_.token;
  const MutexLock lock(mutex_);
  const Time now = clock_.Now();
  if (!token_.empty() && !refused && SecondsBetween(token_read_, now) < kTokenSeconds) return token_;
  std::ifstream file(endpoint_.token_file);
  std::string token((std::istreambuf_iterator<char>(file)), {});
  while (!token.empty() && std::isspace(static_cast<unsigned char>(token.back()))) token.pop_back();
  if (!token.empty()) token_ = token;  // else the old one may still do
  token_read_ = now;
  return token_;
}

Result<Json> RestClient::Send(const Request& request) {
  bool refused = false, repeated = false;
  for (int throttled = 0;;) {
    httplib::Request out;
    out.method = request.method;
    out.path = request.path;
    out.body = request.body;
    out.headers = {{"Accept", "application/json"}};
    if (!request.content_type.empty()) out.headers.emplace("Content-Type", request.content_type);
    if (const std::string token = Token(refused); !token.empty())
      out.headers.emplace("Authorization", "Bearer " + token);
    const httplib::Result answer = [&] {
      Borrowed client(*this);
      httplib::Result result = (*client).send(out);
      if (!result) client.Drop();
      return result;
    }();
    if (!answer) {
      // A connection of the pool that the server has closed meanwhile: nothing was sent.
      const bool unsent = answer.error() == httplib::Error::Write;
      const bool broken = request.method == "GET" && answer.error() == httplib::Error::Read;
      if ((unsent || broken) && !repeated) {
        repeated = true;
        const MutexLock lock(mutex_);
        idle_.clear();  // its neighbours are as old
        continue;
      }
      return NoAnswer(request.method + " " + request.path, answer.error());
    }
    Json body = ParseJson(answer->body);
    if (answer->status < 300) {
      if (body.is_discarded())
        return Status(Code::kInternal, request.method + " " + request.path + ": the answer is no JSON");
      return body;
    }
    Status status = StatusFromApi(answer->status, body);
    if (const std::string after = answer->get_header_value("Retry-After"); !after.empty())
      status.set_retry_after_seconds(std::atof(after.c_str()));
    if (status.Is(Code::kUnauthorized) && !refused && !endpoint_.token_file.empty()) {
      refused = true;
      continue;
    }
    if (!status.Is(Code::kThrottled) || ++throttled > kThrottleRetries) return status;
    std::this_thread::sleep_for(Seconds(std::clamp(status.retry_after_seconds().value_or(1), 0.1, 30.0)));
  }
}

Result<Json> RestClient::Get(const Resource& resource, const std::string& ns, const std::string& name) {
  return Send({"GET", resource.Path(ns) + "/" + Encoded(name), "", ""});
}

Result<Json> RestClient::List(const Resource& resource, const std::string& ns, const ListOptions& options) {
  Query query;
  query.Add("labelSelector", options.label_selector)
      .Add("fieldSelector", options.field_selector)
      .Add("resourceVersion", options.resource_version)
      .Add("continue", options.continue_token);
  if (options.limit > 0) query.Add("limit", std::to_string(options.limit));
  return Send({"GET", resource.Path(ns) + query.text(), "", ""});
}

namespace {

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
  return Send({"POST", resource.Path(ns) + WriteQuery(options), object.dump(), "application/json"});
}

Result<Json> RestClient::MergePatch(const Resource& resource, const std::string& ns, const std::string& name,
                                    const std::string& subresource, const Json& patch, const WriteOptions& options) {
  const std::string path = resource.Path(ns) + "/" + Encoded(name) + (subresource.empty() ? "" : "/" + subresource);
  return Send({"PATCH", path + WriteQuery(options), patch.dump(), "application/merge-patch+json"});
}

Status RestClient::Delete(const Resource& resource, const std::string& ns, const std::string& name,
                          const DeleteOptions& options) {
  Json body = {{"kind", "DeleteOptions"}, {"apiVersion", "v1"}, {"propagationPolicy", "Background"}};
  if (!options.uid.empty()) body["preconditions"] = {{"uid", options.uid}};
  if (options.grace_seconds) body["gracePeriodSeconds"] = *options.grace_seconds;
  return Send({"DELETE", resource.Path(ns) + "/" + Encoded(name), body.dump(), "application/json"}).status();
}

Status RestClient::Watch(const Resource& resource, const std::string& ns, const WatchOptions& options,
                         const std::function<bool(WatchEvent)>& on_event, const StopFlag& stop) {
  Query query;
  query.Add("watch", "1")
      .Add("allowWatchBookmarks", "true")
      .Add("labelSelector", options.label_selector)
      .Add("resourceVersion", options.resource_version)
      .Add("timeoutSeconds", std::to_string(options.timeout_seconds));
  const auto client = Connect();
  client->set_read_timeout(options.timeout_seconds + kReadSeconds);
  {
    const MutexLock lock(mutex_);
    if (interrupted_) return Status::Ok();
    watching_.insert(client.get());
  }
  httplib::Headers headers = {{"Accept", "application/json"}};
  if (const std::string token = Token(false); !token.empty()) headers.emplace("Authorization", "Bearer " + token);
  int http = 0;
  bool ended = false;
  Status failure;
  std::string error_body;
  JsonLines lines(kMaxEventBytes);
  const auto receive = [&](const char* data, size_t size) {
    if (stop) return false;
    if (http != 200) {
      error_body.append(data, std::min(size, kMaxEventBytes - error_body.size()));
      return true;
    }
    failure = lines.Feed(data, size, [&](Json event) {
      if (ended || !json::Field(event, "object").is_object()) return;
      ended = !on_event({json::Text(event, "type"), std::move(event["object"])});
    });
    return failure.ok() && !ended;
  };
  const httplib::Result answer = client->Get(
      resource.Path(ns) + query.text(), headers,
      [&](const httplib::Response& response) {
        http = response.status;
        return true;
      },
      receive);
  {
    const MutexLock lock(mutex_);
    watching_.erase(client.get());
  }
  if (stop || ended) return Status::Ok();
  if (!failure.ok()) return failure;
  if (http != 0 && http != 200) {
    if (http == 401) Token(true);
    return StatusFromApi(http, ParseJson(error_body));
  }
  if (!answer) return NoAnswer("watch " + resource.plural, answer.error());
  return Status::Ok();
}

void RestClient::Interrupt() {
  const MutexLock lock(mutex_);
  interrupted_ = true;
  for (httplib::SSLClient* client : watching_) client->stop();
}

}  // namespace trainyard::kube
