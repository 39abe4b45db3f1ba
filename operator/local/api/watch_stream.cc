#include "operator/local/api/watch_stream.h"

#include <cstdlib>
#include <utility>

#include "operator/local/api/table.h"

namespace trainyard::local {
namespace {

constexpr double kTick = 0.5, kBookmarkSeconds = 10, kLastBookmarkSeconds = 2;

uint64_t VersionOf(const std::string& text) { return std::strtoull(text.c_str(), nullptr, 10); }

}  // namespace

WatchStream::WatchStream(const MemoryApi& api, const Clock& clock, const Resource& resource, std::string ns,
                         Selector selector, const WatchRequest& request, bool table)
    : api_(api),
      clock_(clock),
      resource_(resource),
      ns_(std::move(ns)),
      selector_(std::move(selector)),
      table_(table),
      bookmarks_(request.bookmarks),
      end_(After(clock.Now(), request.timeout_seconds)),
      last_sent_(clock.Now()),
      initial_bookmark_(request.initial_events && request.bookmarks) {
  const kube::ListOptions& list = request.list.options;
  const std::string& version = list.resource_version;
  since_ = VersionOf(version);
  if (!version.empty() && version != "0" && !request.initial_events) return;
  const ApiResult all =
      api.List(resource, ns_, {.label_selector = list.label_selector, .field_selector = list.field_selector});
  since_ = VersionOf(all.body["metadata"]["resourceVersion"].get<std::string>());
  for (const Json& object : all.body["items"]) first_.push_back({"ADDED", object});
}

bool WatchStream::Continue(const Write& write, bool last) {
  if (!SendFirst(write)) return false;
  over_ = last || clock_.Now() >= end_;
  return over_ || SendChanges(write);
}

bool WatchStream::SendFirst(const Write& write) {
  for (const kube::WatchEvent& event : first_) {
    if (!Send(write, event)) return false;
  }
  first_.clear();
  if (!std::exchange(initial_bookmark_, false)) return true;
  kube::WatchEvent bookmark = Bookmark();
  bookmark.object["metadata"]["annotations"] = {{"k8s.io/initial-events-end", "true"}};
  return Send(write, bookmark);
}

bool WatchStream::SendChanges(const Write& write) {
  std::vector<kube::WatchEvent> events;
  if (!api_.Next(resource_, ns_, selector_, since_, kTick, events)) {
    over_ = true;
    return Send(write, {"ERROR", Failure(410, "Expired", "too old resource version: " + std::to_string(since_)).body});
  }
  for (const kube::WatchEvent& event : events) {
    if (!Send(write, event)) return false;
  }
  return SendBookmarkWhenDue(write);
}

// One more shortly before the end: the next watch then goes on from there.
bool WatchStream::SendBookmarkWhenDue(const Write& write) {
  const bool ending = !last_bookmark_ && SecondsBetween(clock_.Now(), end_) <= kLastBookmarkSeconds;
  if (!bookmarks_ || (!ending && SecondsBetween(last_sent_, clock_.Now()) < kBookmarkSeconds)) return true;
  last_bookmark_ = ending;
  return Send(write, Bookmark());
}

bool WatchStream::Send(const Write& write, const kube::WatchEvent& event) {
  Json object = event.object;
  if (table_ && event.type != "ERROR" && event.type != "BOOKMARK") {
    object = MakeTable(resource_, {event.object}, event.object["metadata"]["resourceVersion"], headers_, clock_.Now());
    headers_ = false;
  }
  last_sent_ = clock_.Now();
  return write(Json{{"type", event.type}, {"object", object}}.dump(-1, ' ', false, Json::error_handler_t::replace) +
               "\n");
}

kube::WatchEvent WatchStream::Bookmark() const {
  return {"BOOKMARK",
          {{"kind", resource_.kind},
           {"apiVersion", resource_.ApiVersion()},
           {"metadata", {{"resourceVersion", std::to_string(since_)}}}}};
}

}  // namespace trainyard::local
