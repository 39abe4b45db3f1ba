#include "operator/api/rules.h"

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

// The fields that a running job keeps.
constexpr const char* kFrozen[] = {"workers", "procsPerWorker", "config", "template", "checkpoint"};

bool FrozenWhileRunning(const Json& now, const Json* old) {
  if (!old) return true;
  const Json status = json::Field(*old, "status");
  const std::string phase = json::Text(status, "phase");
  const Json spec = json::Field(now, "spec"), before = json::Field(*old, "spec");
  if (phase.empty() || (phase == kSuspended && json::Flag(spec, "suspend"))) return true;
  if (phase == kInvalid && json::Whole(status, "attempt") == 0) return true;
  for (const char* field : kFrozen) {
    const bool has = spec.contains(field), had = before.contains(field);
    if (has != had || (has && spec[field] != before[field])) return false;
  }
  return true;
}

bool AttemptNeverDecreases(const Json& now, const Json* old) {
  if (!old) return true;
  return json::Whole(json::Field(now, "status"), "attempt") >= json::Whole(json::Field(*old, "status"), "attempt");
}

bool CountOrAuto(const Json& value) {
  return value == "auto" || (value.is_number_integer() && value >= 1 && value <= 1024);
}

bool OneMatchSet(const Json& rule) {
  int set = 0;
  for (const char* match : {"onPodCondition", "onExitCodes", "onReasons"}) set += !json::Field(rule, match).is_null();
  return set == 1;
}

}  // namespace

const std::vector<FieldRule>& FieldRules() {
  static const std::vector<FieldRule> rules = {
      {{"spec", "procsPerWorker"},
       "type(self) == int ? self >= 1 && self <= 1024 : self == 'auto'",
       "an integer from 1 to 1024, or auto",
       CountOrAuto},
      {{"spec", "restart", "rules", "[]"},
       "[has(self.onPodCondition), has(self.onExitCodes), has(self.onReasons)].exists_one(matched, matched)",
       "exactly one of onPodCondition, onExitCodes and onReasons is set",
       OneMatchSet},
  };
  return rules;
}

const std::vector<Rule>& RootRules() {
  static const std::vector<Rule> rules = {
      {"size(self.metadata.name) <= 40 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
       "metadata.name: at most 40 characters of a-z, 0-9 and -, from a letter to a letter or digit (pods and labels "
       "are named after it)",
       "metadata.name", NameIsShort},
      {"!has(oldSelf.status) || !has(oldSelf.status.phase)"
       " || (oldSelf.status.phase == 'Suspended' && has(self.spec.suspend) && self.spec.suspend)"
       " || (oldSelf.status.phase == 'Invalid' && (!has(oldSelf.status.attempt) || oldSelf.status.attempt == 0))"
       " || (self.spec.workers == oldSelf.spec.workers && self.spec.template == oldSelf.spec.template"
       " && has(self.spec.procsPerWorker) == has(oldSelf.spec.procsPerWorker) && (!has(self.spec.procsPerWorker) || "
       "self.spec.procsPerWorker == oldSelf.spec.procsPerWorker)"
       " && has(self.spec.config) == has(oldSelf.spec.config) && (!has(self.spec.config) || self.spec.config == "
       "oldSelf.spec.config)"
       " && has(self.spec.checkpoint) == has(oldSelf.spec.checkpoint) && (!has(self.spec.checkpoint) || "
       "self.spec.checkpoint == oldSelf.spec.checkpoint))",
       "spec: workers, procsPerWorker, config, template and checkpoint may change only before the first attempt, or "
       "while the job is suspended and stays so",
       "spec", FrozenWhileRunning},
      {"!has(oldSelf.status) || !has(oldSelf.status.attempt) || (has(self.status) && has(self.status.attempt) && "
       "self.status.attempt >= oldSelf.status.attempt)",
       "status.attempt never decreases", "status.attempt", AttemptNeverDecreases},
  };
  return rules;
}

}  // namespace trainyard::api
