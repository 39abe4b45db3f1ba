#include "operator/kube/transport.h"

#include <algorithm>

#include "common/build_info.h"
#include "operator/net/address.h"

namespace trainyard::kube {
namespace {

// Of an answer that is held: what is long is delivered.
constexpr size_t kMaxBody = 16 << 20;
// Of one beside which others are held: what a worker reads of an object is seldom a tenth of it.
constexpr size_t kShortBody = 128 << 10;
// Of one that says what is wrong: a tree of it takes some sixty times its text.
constexpr size_t kMaxError = 64 << 10;

// Reads a body: delivers it, if it is wanted so, or puts it into the answer; a long one in its turn.
Status ReadBody(net::HttpReader& reader, const OnData& on_data, Turns& long_bodies, const net::Wait& wait,
                Answer& answer) {
  const bool deliver = on_data && answer.code == 200;
  const size_t most = answer.code < 300 ? kMaxBody : kMaxError;
  bool late = false;
  Status status = reader.Body([&](const char* data, size_t size) {
    if (deliver) return on_data(data, size);
    if (answer.body.size() + size > kShortBody && !answer.turn) {
      answer.turn = long_bodies.Take(wait);
      late = !answer.turn;
      if (late) return false;
    }
    answer.body.append(data, size);
    return answer.body.size() <= most;
  });
  if (late && wait.stop) return Status(Code::kStopped, "the operator stops");
  if (late) return Status(Code::kDeadline, "another long answer was read until the deadline");
  if (!status.ok() || answer.body.size() <= most) return status;
  if (answer.code < 300) return Status(Code::kInternal, "the answer is longer than " + std::to_string(most) + " bytes");
  answer.body.clear();  // its code says what it is
  return Status::Ok();
}

// How far an exchange has come.
struct Reached {
  bool sent = false;       // the server may have seen the whole of the request
  bool delivered = false;  // some of the answer is with the caller
  bool reusable = false;   // the connection may carry another
};

Result<Answer> Exchange(net::Connection& connection, const net::HttpRequest& request, const OnData& on_data,
                        Turns& long_bodies, const net::Wait& wait, Reached& reached) {
  reached = {};
  if (Status status = net::SendRequest(connection, request, wait); !status.ok()) return status;
  reached.sent = true;
  net::HttpReader reader(connection, wait);
  const Result<net::HttpHead> head = reader.Head();
  if (!head.ok()) return head.status();
  Answer answer{
      .code = head->code, .retry_after = std::string(head->Field("retry-after")), .turn = nullptr, .body = ""};
  reached.delivered = on_data && answer.code == 200;
  if (Status status = ReadBody(reader, on_data, long_bodies, wait, answer); !status.ok()) return status;
  reached.reusable = reader.reusable();
  return answer;
}

// Counts one attempt, from when it was made to when it was answered or given up.
class Attempt {
 public:
  Attempt(RequestMetrics* metrics, std::string_view verb) : metrics_(metrics), verb_(verb) {}
  ~Attempt() { Answered(0); }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;
  // It was none.
  void Forget() { metrics_ = nullptr; }
  void Answered(int code) {
    if (metrics_) metrics_->Observe(verb_, code, SecondsBetween(start_, SteadyNow()));
    metrics_ = nullptr;
  }

 private:
  RequestMetrics* metrics_;
  const std::string_view verb_;
  const Instant start_ = SteadyNow();
};

}  // namespace

Transport::Transport(Endpoint endpoint, const Clock& clock, const StopFlag& stop, Options options)
    : endpoint_(std::move(endpoint)),
      stop_(stop),
      options_(std::move(options)),
      credentials_(endpoint_, clock, options_.plugin_seconds),
      connections_(options_.max_connections) {}

net::HttpRequest Transport::Make(const std::string& method, const std::string& target, const std::string& accept,
                                 const Identity& identity) const {
  net::HttpRequest request{.method = method,
                           .target = target,
                           .host = net::HostPort(endpoint_.host, endpoint_.port),
                           .fields = {{"Accept", accept}, {"User-Agent", UserAgent("trainyard-operator")}},
                           .body = ""};
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) request.fields.emplace_back(name, value);
  };
  if (!identity.token.empty()) add("Authorization", "Bearer " + identity.token);
  add("Impersonate-User", endpoint_.as.user);
  add("Impersonate-Uid", endpoint_.as.uid);
  for (const std::string& group : endpoint_.as.groups) add("Impersonate-Group", group);
  return request;
}

Result<std::unique_ptr<net::Connection>> Transport::Open(const Identity& identity, const net::Wait& wait) const {
  return net::Connection::Open(
      {.host = endpoint_.host, .port = endpoint_.port, .server_name = endpoint_.server_name, .proxy = endpoint_.proxy},
      identity.tls.get(), wait);
}

std::unique_ptr<net::Connection> Transport::TakeIdle(const Identity& identity) {
  const MutexLock lock(mutex_);
  while (!idle_.empty()) {
    Pooled pooled = std::move(idle_.back());
    idle_.pop_back();
    if (pooled.tls == identity.tls && pooled.connection->Quiet()) return std::move(pooled.connection);
  }
  return nullptr;
}

void Transport::PutBack(std::unique_ptr<net::Connection> connection, const Identity& identity) {
  const MutexLock lock(mutex_);
  idle_.push_back({std::move(connection), identity.tls});
}

Result<Answer> Transport::Try(const net::HttpRequest& request, const OnData& on_data, const Identity& identity,
                              const net::Wait& wait) {
  const Turns::Turn turn = connections_.Take(wait);
  if (wait.stop) return Status(Code::kStopped, "the operator stops");
  if (!turn) return Status(Code::kDeadline, "all connections were in use until the deadline");
  std::unique_ptr<net::Connection> connection = TakeIdle(identity);
  for (bool repeated = false;; repeated = true) {
    Attempt attempt(options_.metrics, request.method);
    if (!connection) {
      Result<std::unique_ptr<net::Connection>> opened = Open(identity, wait);
      if (!opened.ok()) return opened.status();
      connection = std::move(*opened);
    }
    if (request.method != "GET" && options_.may_write && !options_.may_write()) {
      attempt.Forget();
      PutBack(std::move(connection), identity);
      return Status(Code::kStopped, "this operator does not lead: nothing was written");
    }
    Reached reached;
    Result<Answer> answer = Exchange(*connection, request, on_data, long_bodies_, wait, reached);
    if (answer.ok()) attempt.Answered(answer->code);
    if (answer.ok() && reached.reusable) PutBack(std::move(connection), identity);
    const bool harmless = !reached.sent || (request.method == "GET" && !reached.delivered);
    if (answer.ok() || repeated || !harmless || !answer.status().Is(Code::kUnavailable)) return answer;
    connection.reset();
  }
}

Result<Answer> Transport::Request(const std::string& method, const std::string& target, const std::string& accept,
                                  const Body& body, const OnData& on_data) {
  for (bool refused = false;; refused = true) {
    const Result<Identity> identity = credentials_.Now(net::Wait::For(options_.request_seconds, stop_));
    if (!identity.ok()) return identity.status();
    const net::Wait wait = net::Wait::For(options_.request_seconds, stop_);  // a plugin's time is none of the server's
    net::HttpRequest request = Make(method, target, accept, *identity);
    if (!body.type.empty()) request.fields.emplace_back("Content-Type", body.type);
    request.body = body.text;
    Result<Answer> answer = Try(request, on_data, *identity, wait);
    if (!answer.ok() || answer->code != 401 || refused || !credentials_.Refuse(*identity)) return answer;
  }
}

Result<Answer> Transport::Send(const std::string& method, const std::string& target, const std::string& content_type,
                               const std::string& body) {
  return Request(method, target, kJson, {.type = content_type, .text = body}, nullptr);
}

Result<Answer> Transport::Fetch(const std::string& target, const std::string& accept, const OnData& on_data) {
  return Request("GET", target, accept, {}, on_data);
}

Result<Answer> Transport::Stream(const std::string& target, double seconds, const StopFlag& stop,
                                 const StreamNews& news, const OnData& on_data) {
  const net::Wait wait = net::Wait::For(seconds, stop);
  for (bool refused = false;; refused = true) {
    // Until it is accepted: all requests wait for credentials that are being asked for, and a proxy or a server that
    // hangs may take the connection and never answer.
    const net::Wait opening = net::Wait::For(std::min(seconds, options_.request_seconds), stop);
    const Result<Identity> identity = credentials_.Now(opening);
    if (!identity.ok()) return identity.status();
    Result<Answer> answer = StreamAs(*identity, target, wait, opening, news, on_data);
    if (!answer.ok() || answer->code != 401 || !credentials_.Refuse(*identity) || refused) return answer;
  }
}

Result<Answer> Transport::StreamAs(const Identity& identity, const std::string& target, const net::Wait& wait,
                                   const net::Wait& opening, const StreamNews& news, const OnData& on_data) {
  Attempt attempt(options_.metrics, "WATCH");
  const Result<std::unique_ptr<net::Connection>> connection = Open(identity, opening);
  if (!connection.ok()) return connection.status();
  if (Status status = net::SendRequest(**connection, Make("GET", target, kJson, identity), opening); !status.ok())
    return status;
  net::HttpReader reader(**connection, opening);
  const Result<net::HttpHead> head = reader.Head();
  if (!head.ok()) return head.status();
  Answer answer{
      .code = head->code, .retry_after = std::string(head->Field("retry-after")), .turn = nullptr, .body = ""};
  attempt.Answered(head->code);
  if (head->code == 200) {
    reader.SetDeadline(wait.deadline);
    if (news.accepted) news.accepted();
    if (news.silent && reader.AwaitBody(After(SteadyNow(), news.silent_seconds)).Is(Code::kDeadline)) {
      if (Status status = news.silent(); !status.ok()) return status;
    }
  }
  if (Status status = ReadBody(reader, on_data, long_bodies_, opening, answer); !status.ok()) return status;
  return answer;
}

}  // namespace trainyard::kube
