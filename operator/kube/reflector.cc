#include "operator/kube/reflector.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "operator/base/json_access.h"

namespace trainyard::kube {
namespace {

constexpr double kFirstBackoff = 0.8, kLongestBackoff = 30, kRetrySeconds = 60;
// A watch that lived so long was healthy: with an event, or without one.
constexpr double kLifeWithEvent = 1, kLifeWithout = 10;
// One that ends so long before its time was ended, by a server that goes for instance.
constexpr double kEarlySeconds = 5;
// What a server has to say to a watch that is behind comes in less.
constexpr double kSilenceInDoubt = 2;

std::string VersionOf(const nlohmann::json& object) {
  return json::Text(json::Field(object, "metadata"), "resourceVersion");
}

// Versions of one server are numbers, and grow.
bool WentBack(const std::string& from, const std::string& to) {
  return std::strtoull(to.c_str(), nullptr, 10) < std::strtoull(from.c_str(), nullptr, 10);
}

}  // namespace

std::string ObjectKey(const nlohmann::json& object) {
  const nlohmann::json& metadata = json::Field(object, "metadata");
  const std::string ns = json::Text(metadata, "namespace"), name = json::Text(metadata, "name");
  return ns.empty() ? name : ns + "/" + name;
}

Reflector::Reflector(Client& client, const Clock& clock, Resource resource, Options options, ReflectorSink& sink)
    : client_(client),
      clock_(clock),
      resource_(std::move(resource)),
      options_(std::move(options)),
      sink_(sink),
      random_(options_.seed) {}

double Reflector::Pump(const StopFlag& stop) {
  if (version_.empty() && streams_ && !list_) {
    const Status status = WatchOnce(stop);
    list_ = version_.empty();
    if (!status.Is(Code::kInvalid)) return Wait(status);
    streams_ = false;
  }
  if (version_.empty()) {
    if (const Status status = ListAll(); !status.ok()) return Wait(status);
  }
  if (stop) return 0;
  if (doubtful_ && !useful_) {
    if (const Status status = AskWhetherReached(); !status.ok()) return Wait(status.With("watch " + resource_.plural));
  }
  return Wait(WatchOnce(stop));
}

std::string Reflector::ListVersion() const {
  if (newest_) return "";
  return seen_version_.empty() ? "0" : seen_version_;
}

Status Reflector::ListAll() {
  ListOptions options{.label_selector = options_.label_selector,
                      .field_selector = "",
                      .resource_version = ListVersion(),
                      .limit = options_.page,
                      .continue_token = "",
                      .fields = options_.fields};
  ++counters_.lists;
  sink_.Begin();
  for (bool whole = false;;) {
    const Result<ListEnd> page =
        client_.List(resource_, options_.ns, options, [&](const Json& item) { sink_.Stage(item); });
    if ((page.status().Is(Code::kGone) || page.status().Is(Code::kAhead)) && !whole) {
      // Too old a version, one that the server does not reach, or a continue token that ran out: one list of
      // everything as it is now.
      whole = true;
      sink_.Begin();
      options.resource_version.clear();
      options.continue_token.clear();
      options.limit = 0;
      continue;
    }
    if (!page.ok()) return page.status().With("list " + resource_.plural);
    if (page->resource_version.empty())
      return Status(Code::kInternal, "list " + resource_.plural + ": the answer has no resourceVersion");
    if (!page->continue_token.empty() && page->continue_token == options.continue_token)
      return Status(Code::kInternal, "list " + resource_.plural + ": the server gives the same page for ever");
    options.continue_token = page->continue_token;
    options.resource_version.clear();  // the token holds it
    if (!page->continue_token.empty()) continue;
    Synced(page->resource_version);
    return Status::Ok();
  }
}

Status Reflector::AskWhetherReached() {
  const ListOptions options{.label_selector = options_.label_selector,
                            .field_selector = "",
                            .resource_version = version_,
                            .limit = 1,
                            .continue_token = "",
                            .metadata_only = true};
  const Result<ListEnd> reached = client_.List(resource_, options_.ns, options, [](const Json&) {});
  if (reached.ok()) doubtful_ = false;
  return reached.status();
}

void Reflector::Synced(const std::string& version) {
  sink_.Swap();
  if (WentBack(seen_version_, version)) ++rewinds_;
  version_ = seen_version_ = version;
  newest_ = list_ = doubtful_ = false;
  Active();
  synced_ = true;
}

Status Reflector::WatchOnce(const StopFlag& stop) {
  std::uniform_int_distribution<int> length(options_.min_watch_seconds, options_.max_watch_seconds);
  int64_t events = 0;
  Status failure;
  double asking = 0;  // seconds
  const bool initial = version_.empty();
  if (initial) {
    sink_.Begin();
    ++counters_.lists;
  }
  ++counters_.watches;
  const auto ask = [&] {
    const Instant start = clock_.Steady();
    Status status = AskWhetherReached();
    asking = SecondsBetween(start, clock_.Steady());
    return status;
  };
  const WatchOptions options{.label_selector = options_.label_selector,
                             .resource_version = initial ? ListVersion() : version_,
                             .timeout_seconds = length(random_),
                             .initial_events = initial,
                             .accepted = [&] { Watching(clock_.Steady()); },
                             .silent = doubtful_ && !initial ? std::function(ask) : nullptr,
                             .silent_seconds = kSilenceInDoubt,
                             .fields = options_.fields};
  const auto on_event = [&](const WatchEvent& event) {
    Active();
    if (Handle(event, failure)) ++events;
    return failure.ok();
  };
  Status status = client_.Watch(resource_, options_.ns, options, on_event, stop);
  const std::optional<Instant> accepted = Watching(std::nullopt);
  const double open = accepted ? SecondsBetween(*accepted, clock_.Steady()) : 0;
  const double life = open - asking;  // while it waited for the answer it did not live
  doubtful_ = !version_.empty() && (!status.ok() || open < options.timeout_seconds - kEarlySeconds);
  const bool healthy = life >= kLifeWithout || (events > 0 && life >= kLifeWithEvent);
  useful_ = healthy || events > 0;
  if (healthy) Recover();
  if (!failure.ok()) return failure;
  // A healthy one that was cut is like one that ended.
  if (healthy && (status.Is(Code::kUnavailable) || status.Is(Code::kDeadline))) return Status::Ok();
  if (status.ok() && !useful_ && !stop) status = Status(Code::kUnavailable, "ended at once without an event");
  return status.With("watch " + resource_.plural);
}

std::optional<Instant> Reflector::Watching(std::optional<Instant> since) {
  const MutexLock lock(mutex_);
  return std::exchange(watching_since_, since);
}

void Reflector::Recover() {
  backoff_ = 0;
  const MutexLock lock(mutex_);
  trouble_.reset();
}

void Reflector::Active() { counters_.last_activity_us = clock_.Steady().time_since_epoch().count(); }

std::optional<Trouble> Reflector::trouble() const {
  const MutexLock lock(mutex_);
  if (watching_since_ && SecondsBetween(*watching_since_, clock_.Steady()) >= kLifeWithout) return std::nullopt;
  return trouble_;
}

bool Reflector::Handle(const WatchEvent& event, Status& failure) {
  if (event.type == "ERROR") {
    const int code = static_cast<int>(json::Whole(event.object, "code", 500));
    failure = StatusFromApi(code, event.object);
    if (code != 410 && code != 429 && code < 500) failure = Status(Code::kGone, failure.message());
    return false;
  }
  if (version_.empty()) {
    HandleInitial(event);
    return true;
  }
  if (event.type == "ADDED" || event.type == "MODIFIED") {
    sink_.Upsert(event.object);
  } else if (event.type == "DELETED") {
    sink_.Remove(event.object);
  }  // A bookmark only moves on; a type that we do not know is not ours to judge.
  if (const std::string version = VersionOf(event.object); !version.empty()) version_ = seen_version_ = version;
  return true;
}

// The server may pass changes on before the end of what there is.
void Reflector::HandleInitial(const WatchEvent& event) {
  if (event.type == "ADDED" || event.type == "MODIFIED") {
    sink_.Stage(event.object);
  } else if (event.type == "DELETED") {
    sink_.Unstage(event.object);
  } else if (event.type == "BOOKMARK") {
    const nlohmann::json& annotations = json::Field(json::Field(event.object, "metadata"), "annotations");
    const std::string version = VersionOf(event.object);
    if (json::Text(annotations, kInitialEventsEnd) == "true" && !version.empty()) Synced(version);
  }
}

double Reflector::Wait(const Status& status) {
  if (status.ok() || status.Is(Code::kStopped)) return 0;
  ++counters_.errors;
  if (status.Is(Code::kGone)) {
    ++counters_.gone;
    version_.clear();
    if (backoff_ == 0) {  // The usual way of things, not a fault: list at once.
      backoff_ = kFirstBackoff;
      return 0;
    }
  }
  Instant since = clock_.Steady();
  {
    const MutexLock lock(mutex_);
    if (trouble_) since = trouble_->since;
    trouble_ = {status, since};
  }
  const bool waits = status.Is(Code::kUnavailable) || status.Is(Code::kThrottled) || status.Is(Code::kDeadline);
  if (status.Is(Code::kAhead)) {
    version_.clear();
    if (!std::exchange(newest_, true)) return 0;
  } else if (!waits || (status.Is(Code::kUnavailable) && SecondsBetween(since, clock_.Steady()) > kRetrySeconds)) {
    version_.clear();
  }
  backoff_ = std::clamp(backoff_ * 2, kFirstBackoff, kLongestBackoff);
  std::uniform_real_distribution<double> jitter(1, 2);
  // A server, or what stands before it, may ask for any time: our cache would be old for so long.
  const double asked = std::min(status.retry_after_seconds().value_or(0), kLongestBackoff);
  return std::max(asked, backoff_ * jitter(random_) / 2);
}

}  // namespace trainyard::kube
