#include "operator/kube/reflector.h"

#include <algorithm>

#include "operator/base/json_access.h"

namespace trainyard::kube {
namespace {

constexpr double kFirstWait = 0.8, kLongestWait = 30, kHealthySeconds = 120, kRetrySeconds = 60, kShortWatch = 1;

std::string VersionOf(const nlohmann::json& object) {
  return json::Text(json::Field(object, "metadata"), "resourceVersion");
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
  if (version_.empty()) {
    if (const Status status = ListAll(); !status.ok()) return Wait(status);
  }
  if (stop) return 0;
  return Wait(WatchOnce(stop));
}

Status Reflector::ListAll() {
  ListOptions options{.label_selector = options_.label_selector,
                      .field_selector = "",
                      .resource_version = seen_version_.empty() ? "0" : seen_version_,
                      .limit = 0,
                      .continue_token = ""};
  std::vector<nlohmann::json> items;
  std::string version;
  ++counters_.lists;
  for (bool whole = false;;) {
    Result<Json> page = client_.List(resource_, options_.ns, options);
    if (page.status().Is(Code::kGone) && !whole) {
      // Too old a version, or a continue token that ran out: one list of everything as it is now.
      whole = true;
      items.clear();
      options.resource_version.clear();
      options.continue_token.clear();
      options.limit = 0;
      continue;
    }
    if (!page.ok()) return page.status().With("list " + resource_.plural);
    version = VersionOf(*page);
    if (!page->is_object()) return Status(Code::kInternal, "list " + resource_.plural + ": the answer is no list");
    for (nlohmann::json& item : (*page)["items"]) items.push_back(std::move(item));
    options.continue_token = json::Text(json::Field(*page, "metadata"), "continue");
    if (options.continue_token.empty()) break;
    options.resource_version.clear();  // the token holds it
  }
  sink_.Replace(items);
  version_ = seen_version_ = version;
  counters_.last_activity_us = clock_.Now().time_since_epoch().count();
  synced_ = true;
  return Status::Ok();
}

Status Reflector::WatchOnce(const StopFlag& stop) {
  std::uniform_int_distribution<int> length(options_.min_watch_seconds, options_.max_watch_seconds);
  const WatchOptions options{
      .label_selector = options_.label_selector, .resource_version = version_, .timeout_seconds = length(random_)};
  const Time start = clock_.Now();
  int64_t events = 0;
  Status failure;
  ++counters_.watches;
  const Status status = client_.Watch(
      resource_, options_.ns, options,
      [&](const WatchEvent& event) {
        ++events;
        counters_.last_activity_us = clock_.Now().time_since_epoch().count();
        return Handle(event, failure);
      },
      stop);
  if (!failure.ok()) return failure;
  if (!status.ok()) return status.With("watch " + resource_.plural);
  if (events == 0 && !stop && SecondsBetween(start, clock_.Now()) < kShortWatch)
    return Status(Code::kUnavailable, "watch " + resource_.plural + ": ended at once without an event");
  return Status::Ok();
}

bool Reflector::Handle(const WatchEvent& event, Status& failure) {
  if (event.type == "ERROR") {
    const int code = static_cast<int>(json::Whole(event.object, "code", 500));
    failure = StatusFromApi(code, event.object);
    if (code != 410 && code != 429 && code < 500) failure = Status(Code::kGone, failure.message());
    return false;
  }
  if (event.type == "ADDED" || event.type == "MODIFIED") {
    sink_.Upsert(event.object);
  } else if (event.type == "DELETED") {
    sink_.Remove(event.object);
  }  // A bookmark only moves on; a type that we do not know is not ours to judge.
  if (const std::string version = VersionOf(event.object); !version.empty()) version_ = seen_version_ = version;
  return true;
}

double Reflector::Wait(const Status& status) {
  const Time now = clock_.Now();
  if (status.ok()) {
    if (healthy_since_ == Time{}) healthy_since_ = now;
    if (SecondsBetween(healthy_since_, now) >= kHealthySeconds) backoff_ = 0;
    failing_since_ = Time{};
    return 0;
  }
  healthy_since_ = Time{};
  ++counters_.errors;
  if (failing_since_ == Time{}) failing_since_ = now;
  if (status.Is(Code::kGone)) {
    ++counters_.gone;
    version_.clear();
    if (backoff_ == 0) {  // The usual way of things, not a fault: list at once.
      backoff_ = kFirstWait;
      return 0;
    }
  } else if (status.Is(Code::kUnavailable) && SecondsBetween(failing_since_, now) > kRetrySeconds) {
    version_.clear();
  } else if (!status.Is(Code::kUnavailable) && !status.Is(Code::kThrottled) && !status.Is(Code::kDeadline)) {
    version_.clear();
  }
  backoff_ = std::clamp(backoff_ * 2, kFirstWait, kLongestWait);
  std::uniform_real_distribution<double> jitter(1, 2);
  return std::max(status.retry_after_seconds().value_or(0), backoff_ * jitter(random_) / 2);
}

}  // namespace trainyard::kube
