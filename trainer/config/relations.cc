#include "trainer/config/relations.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/config/mistakes.h"

namespace trainyard {
namespace {

struct Rule {
  bool broken;
  std::string what;
};

// A metric that decides something.
struct Watch {
  const char* field;
  std::string metric;  // empty: nothing is watched
  bool in_time;        // acts before the end of the run, or never
};

std::vector<Watch> Watches(const Config& c) {
  return {{"train.early_stop.metric", c.train.early_stop.metric, true},
          {"schedule.metric", c.schedule.name == "plateau" ? c.schedule.metric : "", true},
          {"checkpoint.keep_best", c.checkpoint.keep_best, false}};
}

void CheckWatch(const Config& c, const Watch& watch) {
  if (watch.metric.empty()) return;
  std::vector<std::string> known;
  for (const Metric& metric : c.task.options->Metrics()) known.push_back(metric.name);
  if (std::find(known.begin(), known.end(), watch.metric) == known.end()) {
    const std::string nearest = NearestName(watch.metric, known);
    throw ConfigError(std::string(watch.field) + ": no metric " + watch.metric + "; expected one of " + Join(known) +
                      (nearest.empty() ? "" : " (did you mean " + nearest + "?)"));
  }
  if (watch.in_time && c.train.eval_every == 0)
    throw ConfigError(std::string(watch.field) + ": " + watch.metric +
                      " is never looked at before the last step; set train.eval_every");
}

std::string Number(int64_t value) { return std::to_string(value); }

}  // namespace

double Badness(std::span<const Metric> metrics, const std::string& name, double value) {
  for (const Metric& metric : metrics) {
    if (metric.name == name) return metric.better == Better::kLower ? value : -value;
  }
  throw std::logic_error("the task declares no metric " + name);
}

void CheckRelations(const Config& c) {
  const Rule rules[] = {
      {c.train.steps && c.train.epochs, "train.steps, train.epochs: both are set; set exactly one"},
      {!c.train.steps && !c.train.epochs, "train.steps, train.epochs: neither is set; set exactly one"},
      {c.data.path.empty(), "data.path: missing; `trainyard synth " + c.task.name + " --out DIR` writes a data set"},
      {c.schedule.name == "plateau" && c.schedule.metric.empty(),
       "schedule.metric: missing; plateau watches an evaluation metric"},
      {std::exp2(std::round(std::log2(c.precision.loss_scale))) != c.precision.loss_scale,
       Format("precision.loss_scale: %g is no power of two, and gradients would be rounded", c.precision.loss_scale)},
      {c.parallel.reduce == "every" && c.parallel.stage != "zero2" && c.parallel.stage != "zero3",
       "parallel.reduce: every shares out the gradients, which needs parallel.stage: zero2 or zero3; it is " +
           c.parallel.stage},
  };
  Mistakes mistakes;
  for (const Rule& rule : rules) {
    if (rule.broken) mistakes.Note([&] { throw ConfigError(rule.what); });
  }
  for (const Watch& watch : Watches(c)) mistakes.Note([&] { CheckWatch(c, watch); });
  mistakes.Note([&] { c.task.options->Check(c); });
  mistakes.Throw();
}

std::vector<std::string> Doubts(const Config& c, int64_t total_steps) {
  const int64_t warmup = c.schedule.warmup, every = c.checkpoint.every, keep = c.checkpoint.keep_every;
  const bool evaluated_once = c.train.eval_every == 0 || c.train.eval_every >= total_steps;
  const std::string run = "of the run's " + Number(total_steps) + " steps";
  const bool one_cycle = c.schedule.name == "onecycle", plateau = c.schedule.name == "plateau";
  std::vector<Rule> rules = {
      {one_cycle && warmup > 0,
       "schedule.warmup: onecycle has a rise of its own (schedule.pct_start); warm-up is not used"},
      {!one_cycle && warmup >= total_steps,
       "schedule.warmup: " + Number(warmup) + " " + run + " are warm-up; the rate never reaches optim.lr"},
      {!one_cycle && c.schedule.pct_start != ScheduleConfig{}.pct_start,
       "schedule.pct_start: only onecycle looks at it; schedule.name is " + c.schedule.name},
      {c.schedule.name == "constant" && c.schedule.min_lr != ScheduleConfig{}.min_lr,
       "schedule.min_lr: schedule.name is constant, and the rate stays at optim.lr"},
      {!plateau && !c.schedule.metric.empty(), "schedule.metric: only plateau looks at it"},
      {c.schedule.name != "constant" && !one_cycle && c.schedule.min_lr > c.optim.lr,
       Format("schedule.min_lr: %g is above optim.lr %g", c.schedule.min_lr, c.optim.lr)},
      {c.parallel.offload != "none" && c.parallel.device == "cpu",
       "parallel.offload: ranks compute in host memory here, so there is none to save; it costs time and memory"},
      {keep > 0 && every == 0, "checkpoint.keep_every: without checkpoint.every there is nothing to keep"},
      {keep > 0 && every > 0 && keep % every != 0, "checkpoint.keep_every: of the checkpoints that every " +
                                                       Number(every) + " steps are written, few are of a multiple of " +
                                                       Number(keep)},
      {every > total_steps, "checkpoint.every: " + Number(every) + " is more than the run's " + Number(total_steps) +
                                " steps; only the last one is saved"},
  };
  for (const Watch& watch : Watches(c)) {
    rules.push_back({!watch.metric.empty() && evaluated_once, std::string(watch.field) + ": train.eval_every is " +
                                                                  Number(c.train.eval_every) + " " + run + ", so " +
                                                                  watch.metric + " is measured once, after the last"});
  }
  std::vector<std::string> doubts;
  for (const Rule& rule : rules) {
    if (rule.broken) doubts.push_back(rule.what);
  }
  return doubts;
}

}  // namespace trainyard
