// A kube::Client whose lists and watches do what a test says, on a clock that the test turns.
#ifndef TRAINYARD_TESTS_OPERATOR_SCRIPTED_CLIENT_H_
#define TRAINYARD_TESTS_OPERATOR_SCRIPTED_CLIENT_H_

#include <atomic>
#include <deque>
#include <string>
#include <vector>

#include "operator/kube/client.h"

namespace trainyard::kube {

class TurnedClock : public Clock {
 public:
  Time Now() const override { return now; }
  void Pass(double seconds) { now = After(now, seconds); }
  Time now{};
};

inline Json ObjectAt(const std::string& name, int version) {
  return {{"metadata",
           {{"name", name}, {"namespace", "default"}, {"uid", name}, {"resourceVersion", std::to_string(version)}}}};
}

inline Json ListAt(int version, const std::vector<std::string>& names = {}) {
  Json items = Json::array();
  for (const std::string& name : names) items.push_back(ObjectAt(name, version));
  return {{"metadata", {{"resourceVersion", std::to_string(version)}}}, {"items", items}};
}

// A page of a list, with the token of the next.
inline Json PageAt(int version, const std::vector<std::string>& names, const std::string& next) {
  Json page = ListAt(version, names);
  page["metadata"]["continue"] = next;
  return page;
}

inline Json TooLarge() {
  return {
      {"kind", "Status"},
      {"code", 504},
      {"reason", "Timeout"},
      {"message", "Too large resource version: 900, current: 5"},
      {"details", {{"causes", {{{"reason", "ResourceVersionTooLarge"}, {"message", "Too large resource version"}}}}}}};
}

class ScriptedClient : public Client {
 public:
  // One watch: accepted, then its events, then `seconds` of life, then its end.
  struct Watched {
    std::vector<WatchEvent> events;
    double seconds = 0;
    Status end;
    bool accepted = true;
  };
  explicit ScriptedClient(TurnedClock& clock) : clock_(clock) {}

  std::deque<Result<Json>> lists;  // what each list answers; behind the last: an empty one
  std::deque<Watched> watches;     // and each watch; behind the last: kStopped
  std::deque<Status> reaches;      // what each list of one object answers; behind the last: an empty one
  double reach_seconds = 0;        // that each of these takes
  bool streams = false;            // whether a watch may begin with what there is
  std::vector<std::string> list_versions, reach_versions, continue_tokens, watch_versions, stream_versions;
  std::atomic<int> calls{0};  // of List; for another thread that waits for one

  Result<ListEnd> List(const Resource&, const std::string&, const ListOptions& options,
                       const std::function<void(const Json&)>& on_item) override {
    if (options.limit == 1) {
      reach_versions.push_back(options.resource_version);
      clock_.Pass(reach_seconds);
      if (reaches.empty()) return ListEnd{"1", ""};
      const Status status = reaches.front();
      reaches.pop_front();
      return status.ok() ? Result<ListEnd>(ListEnd{"1", ""}) : Result<ListEnd>(status);
    }
    list_versions.push_back(options.resource_version);
    continue_tokens.push_back(options.continue_token);
    ++calls;
    Result<Json> answer = ListAt(1);
    if (!lists.empty()) {
      answer = lists.front();
      lists.pop_front();
    }
    if (!answer.ok()) return answer.status();
    for (const Json& item : (*answer)["items"]) on_item(item);
    const Json& metadata = (*answer)["metadata"];
    return ListEnd{metadata["resourceVersion"], metadata.value("continue", "")};
  }
  Status Watch(const Resource&, const std::string&, const WatchOptions& options,
               const std::function<bool(WatchEvent)>& on_event, const StopFlag&) override {
    if (options.initial_events && !streams) return Status(Code::kInvalid, "sendInitialEvents is forbidden");
    if (options.initial_events) stream_versions.push_back(options.resource_version);
    if (!options.initial_events) watch_versions.push_back(options.resource_version);
    if (watches.empty()) return Status(Code::kStopped, "the script is over");
    const Watched watched = watches.front();
    watches.pop_front();
    if (watched.accepted && options.accepted) options.accepted();
    for (const WatchEvent& event : watched.events) {
      if (!on_event(event)) return Status::Ok();
    }
    const bool silent =
        watched.accepted && options.silent && watched.events.empty() && watched.seconds >= options.silent_seconds;
    if (silent) {
      clock_.Pass(options.silent_seconds);
      if (Status status = options.silent(); !status.ok()) return status;
    }
    clock_.Pass(watched.seconds - (silent ? options.silent_seconds : 0));
    return watched.end;
  }
  Result<Json> Get(const Resource&, const std::string&, const std::string&, const FieldPaths&) override {
    return Json::object();
  }
  Result<Json> Create(const Resource&, const std::string&, const Json& object, const WriteOptions&) override {
    return object;
  }
  Result<Json> MergePatch(const Resource&, const std::string&, const std::string&, const std::string&,
                          const Json& patch, const WriteOptions&) override {
    return patch;
  }
  Status Delete(const Resource&, const std::string&, const std::string&, const DeleteOptions&) override {
    return Status::Ok();
  }

 private:
  TurnedClock& clock_;
};

}  // namespace trainyard::kube

#endif  // TRAINYARD_TESTS_OPERATOR_SCRIPTED_CLIENT_H_
