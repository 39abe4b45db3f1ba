#include "trainer/metrics/status.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <chrono>
#include <functional>

#include "common/build_info.h"
#include "common/process_start.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;
using prometheus::MetricType;

using Labels = std::map<std::string, std::string>;
using Value = std::function<void(const RankStatus&, const std::function<void(Labels, double)>&)>;

struct MetricSpec {
  const char* name;
  const char* help;
  MetricType type;
  Value values;
};

Value One(std::function<double(const RankStatus&)> get) {
  return
      [get = std::move(get)](const RankStatus& s, const std::function<void(Labels, double)>& add) { add({}, get(s)); };
}

// No sample while the value is unknown.
Value Known(std::optional<double> RankStatus::*value) {
  return [value](const RankStatus& s, const std::function<void(Labels, double)>& add) {
    if (s.*value) add({}, *(s.*value));
  };
}

template <class T>
Json NullIfUnknown(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// No sample before there is a loader.
Value DataSeconds(const char* stage) {
  return [stage](const RankStatus& s, const std::function<void(Labels, double)>& add) {
    if (const auto it = s.data_seconds.find(stage); it != s.data_seconds.end()) add({}, it->second);
  };
}

// No sample before a step.
void DataWaitRatio(const RankStatus& s, const std::function<void(Labels, double)>& add) {
  double all = 0, data = 0;
  for (const auto& [phase, seconds] : s.phase_seconds) {
    all += seconds;
    if (phase == "data") data = seconds;
  }
  if (all > 0) add({}, data / all);
}

// How far it is, how well and how fast.
std::vector<MetricSpec> OfProgress() {
  return {
      {"trainyard_trainer_build_info", "Always 1; version and commit are labels.", MetricType::Gauge,
       [](const RankStatus&, const auto& add) {
         add({{"version", Build().version}, {"commit", Build().commit}}, 1);
       }},
      {"trainyard_step", "Optimizer steps done.", MetricType::Gauge,
       [](const RankStatus& s, const auto& add) {
         if (s.total_steps > 0) add({}, static_cast<double>(s.step));
       }},
      {"trainyard_total_steps", "Optimizer steps that the run has when it is done.", MetricType::Gauge,
       [](const RankStatus& s, const auto& add) {
         if (s.total_steps > 0) add({}, static_cast<double>(s.total_steps));
       }},
      {"trainyard_eta_seconds", "Seconds to the end at today's speed.", MetricType::Gauge,
       Known(&RankStatus::eta_seconds)},
      {"trainyard_last_progress_timestamp_seconds",
       "When the rank last got on, in whatever phase, seconds since the epoch.", MetricType::Gauge,
       One([](auto& s) { return s.last_progress_time; })},
      {"trainyard_steps_total", "Steps of this attempt by result.", MetricType::Counter,
       [](const RankStatus& s, const auto& add) {
         add({{"result", "ok"}}, static_cast<double>(s.steps_ok));
         add({{"result", "skipped"}}, static_cast<double>(s.steps_skipped));
       }},
      {"trainyard_last_step_timestamp_seconds", "When the last step ended, seconds since the epoch.", MetricType::Gauge,
       Known(&RankStatus::last_step_time)},
      {"trainyard_loss", "Global training loss of the last step.", MetricType::Gauge, Known(&RankStatus::loss)},
      {"trainyard_learning_rate", "Learning rate of the last step.", MetricType::Gauge,
       Known(&RankStatus::learning_rate)},
      {"trainyard_grad_norm", "Global gradient norm before clipping.", MetricType::Gauge,
       Known(&RankStatus::grad_norm)},
      {"trainyard_samples_per_second", "Global throughput.", MetricType::Gauge, Known(&RankStatus::samples_per_second)},
      {"trainyard_tokens_per_second", "Global throughput in positions that go through the network.", MetricType::Gauge,
       Known(&RankStatus::tokens_per_second)},
      {"trainyard_mfu", "Share of what all ranks can compute at most that the model's own operations are.",
       MetricType::Gauge,
       [](const RankStatus& s, const auto& add) {
         if (s.mfu) add({{"convention", "palm"}}, *s.mfu);
       }},
  };
}

// Where the time goes.
std::vector<MetricSpec> OfTime() {
  return {
      {"trainyard_phase_seconds_total", "Time of the step thread by phase.", MetricType::Counter,
       [](const RankStatus& s, const auto& add) {
         for (const auto& [phase, seconds] : s.phase_seconds) add({{"phase", phase}}, seconds);
       }},
      {"trainyard_data_wait_ratio", "Share of the step thread's time that waited for data.", MetricType::Gauge,
       DataWaitRatio},
      {"trainyard_data_read_seconds_total", "Time in which samples were read, of all loader threads together.",
       MetricType::Counter, DataSeconds("read")},
      {"trainyard_data_decode_seconds_total", "Time in which they were decoded, where the task tells it apart.",
       MetricType::Counter, DataSeconds("decode")},
      {"trainyard_data_transform_seconds_total", "Time in which they were transformed, the same way.",
       MetricType::Counter, DataSeconds("transform")},
      {"trainyard_cache_reads_total", "Samples that the cache of prepared ones was asked for.", MetricType::Counter,
       [](const RankStatus& s, const auto& add) {
         for (const auto& [result, count] : s.cache_reads) add({{"result", result}}, static_cast<double>(count));
       }},
      {"trainyard_data_collate_seconds_total", "Time in which micro-batches were made of samples, the same way.",
       MetricType::Counter, DataSeconds("collate")},
      {"trainyard_data_wait_seconds_total", "Time that the step thread waited for the loader.", MetricType::Counter,
       DataSeconds("wait")},
  };
}

// What it holds, and what has happened to it.
std::vector<MetricSpec> OfHealth() {
  return {
      {"trainyard_host_memory_bytes", "Resident memory of the rank's process.", MetricType::Gauge,
       Known(&RankStatus::host_memory_bytes)},
      {"trainyard_checkpoint_last_step", "Step of the newest durable checkpoint.", MetricType::Gauge,
       [](const RankStatus& s, const auto& add) {
         if (s.checkpoint.durable) add({}, static_cast<double>(s.checkpoint.step));
       }},
      {"trainyard_checkpoint_age_seconds", "Age of the newest durable checkpoint.", MetricType::Gauge,
       [](const RankStatus& s, const auto& add) {
         if (s.checkpoint.durable) add({}, UnixTime() - static_cast<double>(s.checkpoint.time));
       }},
      {"trainyard_checkpoint_duration_seconds", "How long the newest checkpoint took in the background.",
       MetricType::Gauge,
       [](const RankStatus& s, const auto& add) {
         if (s.checkpoint.durable && s.checkpoint.duration_seconds) add({}, *s.checkpoint.duration_seconds);
       }},
      {"trainyard_checkpoint_stall_seconds_total", "Time that training waited for checkpoints.", MetricType::Counter,
       One([](auto& s) { return s.checkpoint_stall_seconds; })},
      {"trainyard_micro_batch", "Samples of one forward and backward.", MetricType::Gauge,
       [](const RankStatus& s, const auto& add) {
         if (s.micro_batch > 0) add({}, static_cast<double>(s.micro_batch));
       }},
      {"trainyard_trainer_start_time_seconds", "When the process that serves this began, in seconds since the epoch.",
       MetricType::Gauge,
       [](const RankStatus&, const auto& add) {
         if (const std::optional<double> start = ProcessStart()) add({}, *start);
       }},
      {"trainyard_world_size", "Ranks.", MetricType::Gauge, One([](auto& s) { return s.world; })},
      {"trainyard_restarts_total", "Attempts before this one.", MetricType::Counter,
       [](const RankStatus& s, const auto& add) {
         // A rank that waits for the others does not know which attempt it is in; 0 would be a drop to Prometheus.
         if (s.attempt > 0) add({}, static_cast<double>(s.attempt - 1));
       }},
      {"trainyard_nonfinite_steps_total",
       "Steps with a loss or gradient that is not finite, but for those that a smaller loss scale may mend.",
       MetricType::Counter, One([](auto& s) { return s.steps_nonfinite; })},
      {"trainyard_loss_scale", "What the loss of the last step was multiplied by, with fp16.", MetricType::Gauge,
       Known(&RankStatus::loss_scale)},
      {"trainyard_telemetry_dropped_total", "Events that a sink of telemetry lost.", MetricType::Counter,
       [](const RankStatus& s, const auto& add) {
         for (const auto& [sink, events] : s.telemetry_dropped) add({{"sink", sink}}, static_cast<double>(events));
       }},
  };
}

const std::vector<MetricSpec>& Specs() {
  static const std::vector<MetricSpec> specs = [] {
    std::vector<MetricSpec> all;
    for (std::vector<MetricSpec> part : {OfProgress(), OfTime(), OfHealth()})
      all.insert(all.end(), std::make_move_iterator(part.begin()), std::make_move_iterator(part.end()));
    return all;
  }();
  return specs;
}

template <class T>
void Put(const T& value, Json& json) {
  json = value;
}
template <class T>
void Put(const std::optional<T>& value, Json& json) {
  json = NullIfUnknown(value);
}
template <class T>
void Take(const Json& json, T& value) {
  json.get_to(value);
}
template <class T>
void Take(const Json& json, std::optional<T>& value) {
  value = json.get<T>();
}

// Every field, by its name between a rank and its launcher, which are one build.
template <class Status, class F>
void ForEachField(Status& s, const F& field) {
  field("job_uid", s.job_uid);
  field("attempt", s.attempt);
  field("rank", s.rank);
  field("world", s.world);
  field("phase", s.phase);
  field("step", s.step);
  field("total_steps", s.total_steps);
  field("startup_step", s.startup.step);
  field("rendezvous_seconds", s.startup.rendezvous_seconds);
  field("first_step_seconds", s.startup.first_step_seconds);
  field("last_progress_time", s.last_progress_time);
  field("last_step_time", s.last_step_time);
  field("samples_per_second", s.samples_per_second);
  field("eta_seconds", s.eta_seconds);
  field("loss", s.loss);
  field("learning_rate", s.learning_rate);
  field("grad_norm", s.grad_norm);
  field("tokens_per_second", s.tokens_per_second);
  field("mfu", s.mfu);
  field("loss_scale", s.loss_scale);
  field("host_memory_bytes", s.host_memory_bytes);
  field("checkpoint_step", s.checkpoint.step);
  field("checkpoint_time", s.checkpoint.time);
  field("checkpoint_bytes", s.checkpoint.bytes);
  field("checkpoint_durable", s.checkpoint.durable);
  field("checkpoint_duration_seconds", s.checkpoint.duration_seconds);
  field("checkpoint_path", s.checkpoint.path);
  field("checkpoint_stall_seconds", s.checkpoint_stall_seconds);
  field("steps_ok", s.steps_ok);
  field("steps_skipped", s.steps_skipped);
  field("steps_nonfinite", s.steps_nonfinite);
  field("micro_batch", s.micro_batch);
  field("telemetry_dropped", s.telemetry_dropped);
  field("phase_seconds", s.phase_seconds);
  field("data_seconds", s.data_seconds);
  field("cache_reads", s.cache_reads);
  field("warnings", s.warnings);
}

}  // namespace

double UnixTime() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

void StatusBoard::Alive() {
  Update([](RankStatus& s) {
    if (s.phase != "training") s.last_progress_time = UnixTime();
  });
}

void StatusBoard::Progress(const std::string& phase) {
  Update([&](RankStatus& s) {
    s.phase = phase;
    s.last_progress_time = UnixTime();
  });
}

void StatusBoard::Joined(const std::string& job_uid, int64_t attempt) {
  Update([&](RankStatus& s) {
    s.job_uid = job_uid;
    s.attempt = attempt;
    s.startup.rendezvous_seconds = Age();
  });
}

void StatusBoard::Stepped() {
  Update([&](RankStatus& s) {
    if (!s.startup.first_step_seconds) s.startup.first_step_seconds = Age() - s.startup.rendezvous_seconds.value_or(0);
    s.last_step_time = s.last_progress_time = UnixTime();
  });
}

Json StartupTimes::ToJson() const {
  return {{"step", NullIfUnknown(step)},
          {"rendezvous_seconds", NullIfUnknown(rendezvous_seconds)},
          {"first_step_seconds", NullIfUnknown(first_step_seconds)}};
}

Json RankStatus::ToStatusJson() const {
  const bool joined = attempt > 0, placed = total_steps > 0;
  return {{"job_uid", joined ? Json(job_uid) : Json()},
          {"attempt", joined ? Json(attempt) : Json()},
          {"rank", rank},
          {"world", world},
          {"version", Build().version},
          {"phase", phase},
          {"step", placed ? Json(step) : Json()},
          {"total_steps", placed ? Json(total_steps) : Json()},
          {"startup", startup.ToJson()},
          {"last_step_time", NullIfUnknown(last_step_time)},
          {"last_progress_time", last_progress_time},
          {"samples_per_second", NullIfUnknown(samples_per_second)},
          {"eta_seconds", NullIfUnknown(eta_seconds)},
          {"loss", NullIfUnknown(loss)},
          {"checkpoint",
           {{"step", checkpoint.step},
            {"time", checkpoint.time},
            {"bytes", checkpoint.bytes},
            {"path", checkpoint.path},
            {"durable", checkpoint.durable}}},
          {"warnings", warnings}};
}

Json RankStatus::ToJson() const {
  Json json;
  ForEachField(*this, [&](const char* name, const auto& value) { Put(value, json[name]); });
  return json;
}

RankStatus RankStatus::FromJson(const Json& json) {
  RankStatus status;
  ForEachField(status, [&](const char* name, auto& value) {
    // A loss that is not finite is null in JSON, as an unknown one.
    if (const auto it = json.find(name); it != json.end() && !it->is_null()) Take(*it, value);
  });
  return status;
}

std::string Exposition(const std::vector<RankStatus>& ranks) {
  std::vector<prometheus::MetricFamily> families;
  for (const MetricSpec& spec : Specs()) {
    prometheus::MetricFamily family{spec.name, spec.help, spec.type, {}};
    for (const RankStatus& rank : ranks) {
      if (!rank.Reported()) continue;
      spec.values(rank, [&](const Labels& labels, double value) {
        prometheus::ClientMetric metric;
        for (auto& [name, text] : labels) metric.label.push_back({name, text});
        metric.label.push_back({"rank", std::to_string(rank.rank)});
        (spec.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
        family.metric.push_back(std::move(metric));
      });
    }
    families.push_back(std::move(family));
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace trainyard
