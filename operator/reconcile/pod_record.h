// What the operator keeps of a pod: the labels, the outcome, and nothing of its spec.
#ifndef TRAINYARD_OPERATOR_RECONCILE_POD_RECORD_H_
#define TRAINYARD_OPERATOR_RECONCILE_POD_RECORD_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "operator/base/clock.h"
#include "operator/reconcile/last_words.h"

namespace trainyard::reconcile {

// How a worker ended: by its trainer container's state, not by the pod's phase (a sidecar may run on).
struct PodEnd {
  int64_t exit_code = 0;
  int64_t signal = 0;
  std::string reason;          // the container's (OOMKilled, Error) or the pod's (Evicted)
  std::string init_container;  // the one that failed; empty: the trainer ended
  LastWords words;
  std::optional<Time> time;
};

struct PodRecord {
  std::string name, ns, uid, owner_uid;
  std::string job_name, job_uid;
  int64_t attempt = 0, rank = -1;  // as labelled; rank -1 and attempt 0 when that is no number
  std::string node, ip;
  int status_port = 0;  // where its launcher serves /status; 0: nowhere that we know of
  bool scheduled = false, ready = false;
  bool over = false;                 // every container has ended, a sidecar too: phase Succeeded or Failed
  std::optional<Time> created;       // by the API
  std::optional<Time> deleted_at;    // when its deletion was asked for
  std::optional<Time> gone_by;       // its deletionTimestamp: when its grace is over
  bool deleting = false;             // it was
  bool forced = false;               // without any grace: what still holds it then is a finalizer
  bool disrupted = false;            // DisruptionTarget is true
  std::optional<Time> disrupted_at;  // since when, if that is known
  std::string disruption;            // and why, by the condition
  std::vector<std::string> true_conditions;
  std::string waiting_reason, waiting_message;  // why a container, or the scheduler, does not go on
  std::optional<PodEnd> end;

  std::string JobKey() const { return ns + "/" + job_name; }
};

PodRecord PodFromJson(const nlohmann::json& pod);

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_POD_RECORD_H_
