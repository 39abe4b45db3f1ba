// What the operator keeps of a pod: the labels, the outcome, and nothing of its spec.
#ifndef TRAINYARD_OPERATOR_RECONCILE_POD_RECORD_H_
#define TRAINYARD_OPERATOR_RECONCILE_POD_RECORD_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "operator/base/clock.h"
#include "operator/base/rare.h"
#include "operator/base/shared_text.h"
#include "operator/kube/client.h"
#include "operator/reconcile/last_words.h"

namespace trainyard::reconcile {

// How a worker ended: by its trainer container's state, not by the pod's phase (a sidecar may run on).
struct PodEnd {
  std::optional<int64_t> exit_code = 0;  // nothing: none of its containers has run, or left one behind
  int64_t signal = 0;
  std::string reason;          // the container's (OOMKilled, Error) or the pod's (Evicted)
  bool of_pod = false;         // reason and the words' message are the kubelet's, of the whole pod
  std::string init_container;  // the one that failed; empty: the trainer ended
  LastWords words;
  std::optional<Time> time;
};

// There are ten thousand of them: what many have in common is shared, what few have takes no room in the others.
struct PodRecord {
  std::string name, uid;
  SharedText owner_uid;
  SharedText job_uid;              // by the label
  bool of_job = false;             // its owner is the TrainingJob of that label, whichever that is
  bool orphan = false;             // it has no owner of any kind
  SharedText job_key;              // "namespace/job", by the label
  int64_t attempt = 0, rank = -1;  // as labelled; rank -1 and attempt 0 when that is no number
  SharedText node;
  std::string ip;
  int status_port = 0;  // where its launcher serves /status; 0: nowhere that we know of
  bool scheduled = false, ready = false;
  bool over = false;                           // every container has ended, a sidecar too
  bool deleting = false;                       // its deletion was asked for
  bool forced = false;                         // without any grace: what still holds it then is a finalizer
  bool disrupted = false;                      // DisruptionTarget is true
  std::optional<Time> created;                 // by the API
  std::optional<Time> scheduled_at;            // when it got its node
  std::optional<Time> started_at;              // when its trainer container did
  std::optional<Time> deleted_at;              // when its deletion was asked for; unknown of a forced one
  std::optional<Time> gone_by;                 // its deletionTimestamp: when its grace is over
  std::optional<Time> disrupted_at;            // since when it is disrupted, if that is known
  SharedText disruption;                       // and why, by the condition
  SharedText true_conditions;                  // their types, a line each
  SharedText waiting_reason, waiting_message;  // why a container, or the scheduler, does not go on
  Rare<PodEnd> end;

  bool HasCondition(const std::string& type) const;
};

// `texts` keeps what is shared; for one thread at a time.
PodRecord PodFromJson(const nlohmann::json& pod, TextPool& texts);
// What it reads: a part of a pod's text.
kube::FieldPaths FieldsOfPod();
// Of a pod alone.
inline PodRecord PodFromJson(const nlohmann::json& pod) {
  TextPool texts;
  return PodFromJson(pod, texts);
}

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_POD_RECORD_H_
