// The rules of failed attempts, stated again: operator.md's sentences ("Outcome", "restart") over what really is,
// with none of the operator's code. Written to be read against docs/architecture.md, "Exit codes", and docs/api.md.
#ifndef TRAINYARD_TESTS_SIM_VERDICT_H_
#define TRAINYARD_TESTS_SIM_VERDICT_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/mirror.h"

namespace trainyard::sim {

// The pods of one attempt, by worker; one that is not there has none (any more).
using Attempt = std::map<int64_t, PodView>;

// A worker that ended badly, or is gone.
struct Casualty {
  int64_t worker = 0;
  std::string pod, reason;
  std::optional<int64_t> code;  // nothing: it left nothing behind
  bool told_to = false;         // someone else ended it: DisruptionTarget, a deletion, or gone without a word
  bool target = false;          // by DisruptionTarget
  bool vanished = false;        // it has no pod
  bool forced = false;          // its pod was deleted without grace: when it was first told to go is lost
  Time time{}, target_time{};
  std::optional<int64_t> step;
};

// What a failed attempt must lead to.
struct Verdict {
  Casualty culprit;
  bool fail = false, free = false;  // neither: a restart that is charged unless there was progress
};

// Whether the container's end is a success: 0, and by its own will. Whoever ended in the second in which it was
// told to, may have been told to.
bool Succeeded(const PodView& pod);

// Whether the pod was deleted, and has not ended within its grace and the deadline behind it.
bool IsOverdue(const JobView& job, const PodView& pod, Time now);

using Workers = std::set<int64_t>;

// Of the attempt that `job` is in. `lost`: workers that have lost their pod if they have none in `pods`. An
// end that nobody has dated counts as of `now`, when it is first seen.
std::vector<Casualty> Casualties(const JobView& job, const Attempt& pods, const Workers& lost, Time now);

// Pods of the attempt that someone else deletes, and that have not ended: what the others ended of, when they failed.
std::vector<Casualty> Going(const JobView& job, const Attempt& pods, Time now);

// REQUIRES: casualties is not empty.
Verdict Judge(const JobView& job, const std::vector<Casualty>& casualties);

}  // namespace trainyard::sim

#endif  // TRAINYARD_TESTS_SIM_VERDICT_H_
