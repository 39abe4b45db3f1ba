#include "operator/api/rules.h"

#include "operator/api/labels.h"
#include "operator/base/json_access.h"

namespace trainyard::api {
namespace {

bool NameIsShort(const Json& now, const Json*) {
  const std::string name = json::Text(json::Field(now, "metadata"), "name");
  if (name.empty() || name.size() > 40 || name.front() < 'a' || name.front() > 'z' || name.back() == '-') return false;
  for (const char c : name) {
    if ((c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-') return false;
  }
  return true;
}

// The parts of the spec that make the pods: those that are required or have a default, which the server fills in before
// it evaluates a rule, and the one that may be absent.
constexpr const char* kPodFields[] = {"workers",    "procsPerWorker", "template",
                                      "checkpoint", "scheduling",     "rendezvous"};
constexpr char kConfig[] = "config";

bool IsSame(const Json& now, const Json& old, const char* field) {
  return json::Field(json::Field(now, "spec"), field) == json::Field(json::Field(old, "spec"), field);
}

// By the old spec, not the new one: Kueue sets node selectors and ends the suspension in one update. By the attempt,
// not the phase: a running attempt keeps its spec whatever it is called.
bool MayChange(const Json& old) {
  return json::Whole(json::Field(old, "status"), "attempt") == 0 || json::Flag(json::Field(old, "spec"), "suspend");
}

// The server evaluates these with every write of a status as well: what holds for a spec that does not change comes
// first. What they cost is the fields that they look at, each of which lists all fields of its object anew. Optional
// values would be shorter still, but the server takes their comparison for one without bounds, and refuses the CRD.
constexpr char kNotBegunCel[] = "oldSelf.?status.?attempt.orValue(0) == 0";

std::string SameCel(const std::string& field) { return "self.spec." + field + " == oldSelf.spec." + field; }

std::string SameOrAbsentCel(const std::string& field) {
  const std::string has = "has(self.spec." + field + ")";
  return has + " == has(oldSelf.spec." + field + ") && (!" + has + " || " + SameCel(field) + ")";
}

Rule KeptWhileRunning(const char* field, const std::string& same) {
  return {same + " || oldSelf.spec.suspend || " + kNotBegunCel,
          std::string(field) + " may change only before the first attempt, or while spec.suspend is true",
          std::string("spec.") + field, true,
          [field](const Json& now, const Json* old) { return !old || MayChange(*old) || IsSame(now, *old, field); }};
}

std::string GangOf(const Json& job) {
  const std::string gang = json::Text(json::Field(json::Field(job, "spec"), "scheduling"), "gang");
  return gang.empty() ? kNoGang : gang;
}

// The PodGroups of a gang go while the job is being suspended: those of one that it no longer has would stay.
Rule GangKeptUntilSuspended() {
  return {SameCel("scheduling.gang") + " || " + kNotBegunCel + " || oldSelf.?status.?phase.orValue('') == '" +
              kSuspended + "'",
          "gang may change only before the first attempt, or once the job is Suspended", "spec.scheduling.gang", true,
          [](const Json& now, const Json* old) {
            const Json& status = json::Field(old ? *old : now, "status");
            return !old || json::Whole(status, "attempt") == 0 || json::Text(status, "phase") == kSuspended ||
                   GangOf(now) == GangOf(*old);
          }};
}

bool AttemptNeverDecreases(const Json& now, const Json* old) {
  if (!old) return true;
  return json::Whole(json::Field(now, "status"), "attempt") >= json::Whole(json::Field(*old, "status"), "attempt");
}

bool CountOrAuto(const Json& value) {
  return value == "auto" || (value.is_number_integer() && value >= 1 && value <= kMaxProcsPerWorker);
}

// Not of an empty text or list, nor of none.
bool Says(const Json& value) {
  return value.is_string() ? !value.get_ref<const std::string&>().empty() : !value.empty();
}

bool OneMatchSet(const Json& rule) {
  int set = 0;
  for (const char* match : {"onPodCondition", "onExitCodes", "onReasons"}) set += Says(json::Field(rule, match));
  return set == 1;
}

bool BackoffGrows(const Json& backoff) {
  const Backoff standard;
  return backoff.value("initialSeconds", standard.initial_seconds) <= backoff.value("maxSeconds", standard.max_seconds);
}

bool QueueIsVolcanos(const Json& scheduling) {
  return QueueIsAllowed(json::Text(scheduling, "queue"), json::Text(scheduling, "gang"));
}

}  // namespace

bool QueueIsAllowed(const std::string& queue, const std::string& gang) { return queue.empty() || gang == kVolcanoGang; }

std::string WhenQueueIsAllowed() {
  return std::string("only with gang ") + kVolcanoGang + " (Kueue's is the label " + kLabelQueue + ")";
}

const std::vector<FieldRule>& FieldRules() {
  static const std::string most = std::to_string(kMaxProcsPerWorker);
  static const std::vector<FieldRule> rules = {
      {{"spec", "procsPerWorker"},
       "type(self) == int ? self >= 1 && self <= " + most + " : self == 'auto'",
       "an integer from 1 to " + most + ", or auto",
       CountOrAuto},
      {{"spec", "restart", "rules", "[]"},
       "[has(self.onPodCondition) && self.onPodCondition != '', has(self.onExitCodes) && size(self.onExitCodes) > 0, "
       "has(self.onReasons) && size(self.onReasons) > 0].exists_one(matched, matched)",
       "exactly one of onPodCondition, onExitCodes and onReasons is set, and not empty",
       OneMatchSet},
      {{"spec", "restart", "backoff"},
       // Also of the field's own default, an empty object, which is checked as it stands.
       "!has(self.initialSeconds) || !has(self.maxSeconds) || self.initialSeconds <= self.maxSeconds",
       "maxSeconds is at least initialSeconds",
       BackoffGrows},
      {{"spec", "scheduling"},
       std::string("!has(self.queue) || self.queue == '' || (has(self.gang) && self.gang == '") + kVolcanoGang + "')",
       "queue is Volcano's: it is set " + WhenQueueIsAllowed(),
       QueueIsVolcanos},
  };
  return rules;
}

const std::vector<Rule>& RootRules() {
  static const std::vector<Rule> rules = [] {
    std::vector<Rule> all = {
        {"size(self.metadata.name) <= 40 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
         "metadata.name: at most 40 characters of a-z, 0-9 and -, from a letter to a letter or digit (pods and labels "
         "are named after it)",
         "metadata.name", false, NameIsShort}};
    for (const char* field : kPodFields) all.push_back(KeptWhileRunning(field, SameCel(field)));
    all.push_back(KeptWhileRunning(kConfig, "(" + SameOrAbsentCel(kConfig) + ")"));
    all.push_back(GangKeptUntilSuspended());
    all.push_back({SameOrAbsentCel("managedBy"), "managedBy never changes: two controllers would share the job's pods",
                   "spec.managedBy", true,
                   [](const Json& now, const Json* old) { return !old || IsSame(now, *old, "managedBy"); }});
    all.push_back({"self.?status.?attempt.orValue(0) >= oldSelf.?status.?attempt.orValue(0)", "attempt never decreases",
                   "status.attempt", true, AttemptNeverDecreases});
    return all;
  }();
  return rules;
}

}  // namespace trainyard::api
