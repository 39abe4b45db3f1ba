// Events (events.k8s.io/v1) for what a person would want to know. The same one again within a few minutes becomes a
// series of the first. An object has 25 at once and one more in five minutes, as client-go's recorder allows: one that
// fails again and again, each time in other words, fills nobody's etcd. None is worth failing for.
#ifndef TRAINYARD_OPERATOR_KUBE_EVENTS_H_
#define TRAINYARD_OPERATOR_KUBE_EVENTS_H_

#include <cstdint>
#include <map>
#include <string>

#include "operator/base/clock.h"
#include "operator/base/mutex.h"
#include "operator/kube/client.h"

namespace trainyard::kube {

// What an event is about.
struct ObjectReference {
  std::string api_version, kind, ns, name, uid;
};

// Thread-safe.
class EventRecorder {
 public:
  // `instance` names this process, as reportingInstance.
  EventRecorder(Client& client, const Clock& clock, std::string instance)
      : client_(client), clock_(clock), instance_(std::move(instance)) {}

  // type: Normal or Warning. The note is cut to 1024 bytes. kThrottled, and nothing is sent: the object has had its
  // events for now; Succeeded and Failed, after which there are no more, have some of their own.
  Status Record(const ObjectReference& about, const std::string& type, const std::string& reason,
                const std::string& note);

 private:
  // Forgets a series that the server does not have, so that the next one starts anew.
  Status Kept(const std::string& key, Status status);
  struct Series {
    std::string name;
    int64_t count = 1;
    Instant last{};
  };
  struct Bucket {
    double tokens;
    Instant filled;
  };
  // Takes one of the object's tokens; false when it has none. Two are kept for a last word: a crash loop uses up its
  // events, and how it ended is what people look for.
  bool TakeToken(const std::string& uid, bool last_word, Instant now) REQUIRES_LOCK(mutex_);
  Client& client_;
  const Clock& clock_;
  const std::string instance_;
  Mutex mutex_;
  std::map<std::string, Series> series_ GUARDED_BY(mutex_);
  std::map<std::string, Bucket> buckets_ GUARDED_BY(mutex_);  // by uid; a full one is not kept
  int64_t next_ GUARDED_BY(mutex_) = 0;
};

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_EVENTS_H_
