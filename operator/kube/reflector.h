// Keeps a sink equal to one resource of the API: list, watch from there, and list again when the
// server has forgotten where we were.
//
// Contract
//   - What there is comes at the begin of a watch (initial events), up to the bookmark that says so, and the stream
//   goes
//     on. A server that refuses is not asked so again: it is listed, in pages, and the watch goes on from the list's
//     resourceVersion. So it is once after a stream that ended before that bookmark.
//   - Either way the first asks for resourceVersion "0", the sink gets the objects one by one as they come, beside
//     what it has, and takes them all at once at the end. A page that the server has forgotten (410) begins one list of
//     everything anew: never a mix of two.
//   - Every event and bookmark advances the resourceVersion. A watch that ends normally is taken up again without a
//   list.
//   - 410, in a response or as an ERROR event: list again. Any other ERROR event: 429 waits and keeps
//     the resource version; 5xx is retried for a minute, then lists; the rest lists.
//   - 504 "Too large resource version": the server has been restored from a backup. The next list asks for what there
//     is now, at once; rewinds() says that versions went back. A list is refused so; a watch is accepted, and waits for
//     its version without a word. So behind a watch that did not end of itself, in its time, a list of one object asks
//     whether the server still reaches where we are: at once where that watch neither was healthy nor brought an
//     event, else when the next one has been silent for two seconds. For a server that has no room for the events of a
//     watch cuts it, and goes on in the next. One that has overtaken us before it is asked is not noticed.
//   - A refused connection, for a minute, or a 429 keeps the resource version. Waits are 0.8 s doubled up to 30 s with
//     jitter, or what the server asks for, 30 s at most. A watch is judged by its own life: one that lived for ten
//     seconds, or for one with an event, after the server had accepted it, was healthy however it ended, is taken up
//     again without a list, and the waits start from 0.8 s again.
//   - A failure that stands is told (trouble()) until a watch lives again.
// Source: client-go's tools/cache contract as operator.md section 4 lists it.
#ifndef TRAINYARD_OPERATOR_KUBE_REFLECTOR_H_
#define TRAINYARD_OPERATOR_KUBE_REFLECTOR_H_

#include <atomic>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>

#include "operator/base/clock.h"
#include "operator/base/mutex.h"
#include "operator/kube/client.h"

namespace trainyard::kube {

// "namespace/name", or "name".
std::string ObjectKey(const nlohmann::json& object);

class ReflectorSink {
 public:
  virtual ~ReflectorSink() = default;
  // A new set beside the one that counts: Begin() empties it, whatever it held, and Swap() puts it in the other's
  // place.
  virtual void Begin() = 0;
  virtual void Stage(const nlohmann::json& object) = 0;
  virtual void Unstage(const nlohmann::json& object) = 0;
  virtual void Swap() = 0;
  // Changes of the set that counts.
  virtual void Upsert(const nlohmann::json& object) = 0;
  virtual void Remove(const nlohmann::json& object) = 0;
};

struct ReflectorCounters {
  std::atomic<int64_t> lists{0}, watches{0}, gone{0}, errors{0};
  std::atomic<int64_t> last_activity_us{0};  // Instant of the last answer or event; 0: there was none
};

// Why nothing comes any more, and since when.
struct Trouble {
  Status status;
  Instant since;
};

class Reflector {
 public:
  struct Options {
    std::string ns;              // empty: all
    std::string label_selector;  // on the server's side
    int min_watch_seconds = 300, max_watch_seconds = 600;
    int64_t page = 500;      // objects of a list's page
    uint64_t seed = 1;       // of the jitter
    FieldPaths fields = {};  // that the sink reads
  };
  Reflector(Client& client, const Clock& clock, Resource resource, Options options, ReflectorSink& sink);

  // One round: all there is, if that is due, then one watch until it ends. Returns the seconds to wait before
  // the next. Called by one thread; `stop` may be set by another and ends the round.
  double Pump(const StopFlag& stop);

  // Whether the sink has had a whole list. Thread-safe, like what follows.
  bool synced() const { return synced_.load(); }
  // The newest failure, when nothing has worked since; nothing while a watch lives.
  std::optional<Trouble> trouble() const;
  // How often the server's resource versions went back: what was noted of older ones says nothing any more.
  int64_t rewinds() const { return rewinds_.load(); }
  const ReflectorCounters& counters() const { return counters_; }
  const Resource& resource() const { return resource_; }

 private:
  Status ListAll();
  // kAhead: the server has not come as far as version_.
  Status AskWhetherReached();
  Status WatchOnce(const StopFlag& stop);
  bool Handle(const WatchEvent& event, Status& failure);
  void HandleInitial(const WatchEvent& event);
  // Where a list, or a watch with initial events, starts.
  std::string ListVersion() const;
  // The sink has all there is at `version`.
  void Synced(const std::string& version);
  double Wait(const Status& status);
  // Notes since when the server has had our watch; returns what was noted.
  std::optional<Instant> Watching(std::optional<Instant> since);
  void Recover();
  void Active();

  Client& client_;
  const Clock& clock_;
  const Resource resource_;
  const Options options_;
  ReflectorSink& sink_;
  std::mt19937_64 random_;
  std::string version_;       // where the next watch starts; empty: what there is comes first
  std::string seen_version_;  // the newest one ever seen: where a list after a 410 starts
  bool newest_ = false;       // the next list asks for what there is now, whatever was seen
  bool streams_ = true;       // the server offers initial events, as far as we know
  bool list_ = false;         // a list is next, although it does
  bool doubtful_ = false;     // the server may be another than that of version_
  bool useful_ = false;       // the last watch was healthy, or brought an event
  double backoff_ = 0;
  std::atomic<bool> synced_{false};
  std::atomic<int64_t> rewinds_{0};
  mutable Mutex mutex_;
  std::optional<Trouble> trouble_ GUARDED_BY(mutex_);
  std::optional<Instant> watching_since_ GUARDED_BY(mutex_);
  ReflectorCounters counters_;
};

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_REFLECTOR_H_
