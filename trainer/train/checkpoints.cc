#include "trainer/train/checkpoints.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/message.h"
#include "trainer/base/stop_signal.h"
#include "trainer/base/text.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/config/load.h"
#include "trainer/device/host_device.h"
#include "trainer/parallel/flat_layout.h"
#include "trainer/task/tasks.h"
#include "trainer/train/bits.h"
#include "trainer/train/frozen.h"
#include "trainer/train/host_slices.h"
#include "trainer/train/run_directory.h"
#include "trainer/train/saved_state.h"
#include "trainer/train/weights_origin.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

const std::string kFailed = "failed: ";  // what a rank says instead of how much it has loaded

// What a checkpoint fills of those slices, of the host's memory, that `wanted` takes.
template <class Wanted>
TensorTargets TargetsOf(const std::vector<StateSlice>& slices, const Wanted& wanted) {
  TensorTargets targets;
  for (const StateSlice& slice : slices) {
    if (wanted(slice)) targets.emplace(slice.key, TensorTarget{slice.shape, Floats(slice.values), slice.begin});
  }
  return targets;
}

bool IsReplicated(const StateSlice& slice) { return slice.replicated; }
bool IsOwned(const StateSlice& slice) { return !slice.replicated; }

const std::string kModel = "model.", kAverage = "ema.";

void BeginAverages(const std::vector<StateSlice>& state) {
  std::map<std::pair<std::string, int64_t>, at::Tensor> averages;
  for (const StateSlice& slice : state) {
    if (slice.key.starts_with(kAverage)) averages[{slice.key.substr(kAverage.size()), slice.begin}] = slice.values;
  }
  for (const StateSlice& slice : state) {
    if (!slice.key.starts_with(kModel)) continue;
    const auto average = averages.find({slice.key.substr(kModel.size()), slice.begin});
    if (average != averages.end()) average->second.copy_(slice.values);
  }
}

// What leaves every other float as it is when it is added to it, a zero of either sign included.
void FillNeutral(const TensorTargets& targets) {
  for (const auto& [key, target] : targets) std::fill(target.values.begin(), target.values.end(), -0.f);
}

int64_t CountValues(const TensorTargets& targets) {
  int64_t count = 0;
  for (const auto& [key, target] : targets) count += static_cast<int64_t>(target.values.size());
  return count;
}

}  // namespace

Checkpoints::Checkpoints(const Config& config, const Plan& plan, const std::string& fingerprint, Engine& engine,
                         BestWeights& best, Session& session, const Resume& resume)
    : config_(config),
      plan_(plan),
      fingerprint_(fingerprint),
      engine_(&engine),
      best_(best),
      session_(session),
      last_saved_(resume.here ? resume.step : -1),
      resumed_(resume.step > 0),
      averages_begin_(!resume.has_averages),
      source_(resume.source),
      shared_(resume.shared),
      room_(*session.device),
      writer_({.directory = config.checkpoint.dir,
               .writer = {session.job_uid, session.attempt},
               .rank = session.world.rank,
               .world = session.world.size,
               .retention = {config.checkpoint.keep_last, config.checkpoint.keep_every},
               .resumed = resume.durable,
               .life = session.life},
              session.store) {
  std::error_code ignored;
  if (!shared_) fs::create_directories(config.checkpoint.dir, ignored);
}

void Checkpoints::Load() {
  if (!resumed_ && config_.init.from.empty()) return;  // every rank has the same initial values
  const World& world = session_.world;
  auto store = std::make_shared<PrefixStore>(session_.store, "load/");
  SignsOfLife signs(store, world.rank, StopRequested, session_.life);
  HostSlices state(Loaded());
  try {
    const int64_t read = LoadPart(state, [&] { signs.Beat(); });
    store->Set(std::to_string(world.rank), std::to_string(read));
  } catch (const std::exception& error) {
    store->Set(std::to_string(world.rank), kFailed + MessageOf(error));
    throw;
  }
  int64_t read = 0;
  for (int rank = 0; rank < world.size; ++rank) {
    const std::string values = signs.Wait(std::to_string(rank), rank, Format("rank %d to load its part", rank));
    if (values.starts_with(kFailed))
      throw PeerError(Format("rank %d could not load the weights: %s", rank, values.substr(kFailed.size()).c_str()));
    read += std::stoll(values);
  }
  if (resumed_ && read != CountValues(TargetsOf(state.slices(), IsReplicated)))
    throw StorageError("the ranks have not read every value of the checkpoint");
  Communicator& communicator = *session_.control;  // host memory
  for (const StateSlice& slice : state.slices()) {
    if (IsOwned(slice)) continue;
    communicator.Wait(resumed_ ? communicator.AllReduce(slice.values, "loading")
                               : communicator.Broadcast(slice.values, 0, "loading"));
  }
  state.Return();
  if (resumed_ && averages_begin_) BeginAverages(State());
  // What a rank owns of a file that rank 0 alone reads, it takes from the whole.
  const bool whole = !resumed_ && std::ranges::any_of(state.slices(), IsOwned);
  if (!config_.init.from.empty())
    LoadFrom(config_.init.from, whole ? LoadedPart::kEverything : LoadedPart::kFrozen, *engine_, communicator,
             session_.store, session_.life);
  engine_->Publish();
  source_.reset();
}

// What this rank has to read; returns how many values of the checkpoint it has read of what every rank holds.
// Everywhere else stand values that change no sum. What it owns it reads itself, from whichever files hold it.
int64_t Checkpoints::LoadPart(HostSlices& state, const Tick& tick) {
  if (!resumed_) {
    if (session_.world.rank == 0)
      LoadWeights("init.from", config_.init.from, WeightsUse::kStart, config_, *engine_, tick);
    state.Fetch();
    return 0;
  }
  const TensorTargets replicated = TargetsOf(state.slices(), IsReplicated), owned = TargetsOf(state.slices(), IsOwned);
  FillNeutral(replicated);
  if (!owned.empty()) {
    OpenCheckpoint every = OpenCheckpoint::Open(source_->path);
    // Of a run that lives, which may have saved the step again, the checksums would be of other files.
    if (every.manifest.ToText() != source_->manifest.ToText())
      throw StorageError(every.path.string() + " was replaced while it was read: start again, or resume from a copy");
    OpenVerified(every);
    LoadTensors(every, owned, tick);
  }
  return source_ ? LoadOpenFiles(*source_, replicated, tick) : 0;
}

std::vector<StateSlice> Checkpoints::State() const {
  std::vector<StateSlice> state = engine_->Slices(), best = best_.Slices();
  std::move(best.begin(), best.end(), std::back_inserter(state));
  return state;
}

std::vector<StateSlice> Checkpoints::Loaded() const {
  std::vector<StateSlice> state = State();
  if (resumed_ && averages_begin_)
    std::erase_if(state, [](const StateSlice& slice) { return slice.key.starts_with(kAverage); });
  return state;
}

std::vector<StateSlice> Checkpoints::Parts() const {
  // What every rank holds is written by all of them, an equal part each; without a common directory rank 0 writes all.
  const int64_t rank = session_.world.rank, world = session_.world.size;
  std::vector<StateSlice> parts;
  for (StateSlice& slice : State()) {
    const int64_t size = slice.end - slice.begin;
    int64_t from = 0, to = size;
    if (slice.replicated && shared_) {
      from = size * rank / world;
      to = size * (rank + 1) / world;
    } else if (slice.replicated && rank != 0) {
      continue;
    }
    if (from == to) continue;
    slice.values = slice.values.narrow(0, from, to - from);
    slice.end = slice.begin + to;
    slice.begin += from;
    parts.push_back(std::move(slice));
  }
  return parts;
}

bool Checkpoints::Snapshot(std::vector<StateSlice>& parts) {
  int64_t values = 0;
  for (const StateSlice& part : parts) {
    if (part.values.is_cpu()) return false;
    values += part.values.numel();
  }
  if (values == 0 || !room_.Has(values * 4)) return false;
  at::Tensor snapshot;
  try {
    snapshot = at::empty({values}, parts.front().values.options());
  } catch (const c10::OutOfMemoryError&) {  // free in pieces, or another's by now
    return false;
  }
  int64_t at = 0;
  for (StateSlice& part : parts) {
    part.values = snapshot.narrow(0, at, part.values.numel()).copy_(part.values);
    at += part.values.numel();
  }
  return true;
}

void Checkpoints::Begin(const TrainState& train) {
  const Json state = {{"epoch", train.step * plan_.global_batch / plan_.epoch_samples},
                      {"cursor", train.step * plan_.global_batch},
                      {"seed", config_.run.seed},
                      {"global_batch", plan_.global_batch},
                      {"cache", {{"N", plan_.window}, {"R", plan_.window_replaced}}},
                      {"bits", BitsOf(config_, plan_)},
                      {"config", ToJson(config_)},
                      {"data_fingerprint", fingerprint_},
                      {"evaluation_pending", train.evaluation_pending},
                      {"train", train.ToJson()}};
  writer_.Finish();  // what it copies from is free then
  std::vector<StateSlice> parts = Parts();
  const Sources sources = Snapshot(parts) ? Sources::kStay : Sources::kChange;
  session_.device->Synchronize();  // then they are what this step has left
  std::vector<SourceSlice> slices;
  for (StateSlice& part : parts) {
    Device& device = part.values.is_cpu() ? Host() : *session_.device;
    slices.push_back({part.key, part.shape, part.begin, part.end,
                      [values = part.values, &device](float* at) { device.Download(values, at); }});
  }
  writer_.Begin(train.step, std::move(slices), state, sources);
  last_saved_ = train.step;
  last_began_ = std::chrono::steady_clock::now();
}

bool Checkpoints::WantsSave() const {
  const CheckpointConfig& c = config_.checkpoint;
  const std::chrono::duration<double, std::ratio<60>> since = std::chrono::steady_clock::now() - last_began_;
  return session_.world.rank == 0 && c.every == 0 && c.minutes > 0 && since.count() >= c.minutes;
}

bool Checkpoints::IsDue(const TrainState& train, bool agreed) const {
  const bool due = config_.checkpoint.every > 0 && train.step % config_.checkpoint.every == 0;
  return (due || agreed) && train.step != last_saved_;
}

void Checkpoints::SaveNow(const TrainState& train) {
  if (train.step != last_saved_) Begin(train);
  writer_.Finish();
}

std::optional<int64_t> LoadModel(const std::string& path, const Config& config, const std::string& fingerprint,
                                 Engine& engine) {
  if (!fs::is_directory(path)) {
    LoadWeights("--checkpoint", path, WeightsUse::kAsTheyAre, config, engine);
    return {};
  }
  const Tick obey = [] {
    if (StopRequested()) throw StoppedError("stopped on request while the checkpoint was read");
  };
  const OpenCheckpoint found = FindCheckpoint(
      "--checkpoint", path, [&](OpenCheckpoint& checkpoint) { VerifyFiles(checkpoint, checkpoint.FileNames(), obey); });
  const SavedState saved = SavedStateOf(found);
  const std::vector<ParameterSpec>& parameters = engine.declaration().parameters;
  const bool frozen =
      std::any_of(parameters.begin(), parameters.end(), [](const ParameterSpec& spec) { return !spec.trainable; });
  for (const std::string& note : RequireSameModel("--checkpoint: " + found.path.string(), saved.config.dump(),
                                                  saved.data_fingerprint, config, fingerprint, frozen))
    std::fprintf(stderr, "note: %s\n", note.c_str());
  std::vector<StateSlice> wanted = engine.Slices();
  for (StateSlice& slice : wanted) {
    if (slice.key.starts_with(kModel)) slice.key = WeightsKey(found, slice.key.substr(kModel.size()));
  }
  std::erase_if(wanted, [](const StateSlice& slice) { return slice.key.starts_with("adamw."); });
  HostSlices here(std::move(wanted));
  LoadTensors(found, TargetsOf(here.slices(), [](const StateSlice&) { return true; }));
  here.Return();
  engine.Publish();
  return found.manifest.step;
}

namespace {

// "[64, 3]"
std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "[" : ", ") + std::to_string(size);
  return (text.empty() ? "[" : text) + "]";
}

// A weight that is not finite makes every loss nan: that would be said of a step, and nothing of the file.
void RequireFinite(const std::string& where, std::span<const float> values) {
  const auto bad = std::ranges::find_if_not(values, [](float value) { return std::isfinite(value); });
  if (bad != values.end())
    throw ConfigError(Format("%s: value %td is %f; expected finite ones", where.c_str(), bad - values.begin(),
                             static_cast<double>(*bad)));
}

// A file of another model may have hundreds of wrong names.
std::string FirstOf(const std::vector<std::string>& names) {
  constexpr size_t kNamed = 5;
  if (names.size() <= kNamed + 1) return Join(names);
  return Join(std::span(names).first(kNamed)) + Format(" and %zu more", names.size() - kNamed);
}

bool IsOptional(const ModelDeclaration& model, const std::string& name) {
  return std::ranges::any_of(model.optional, [&](const std::string& pattern) { return MatchesPattern(pattern, name); });
}

// Whether the file lacks a part of the model that it may lack: all of its parameters.
bool LacksOptional(const SafetensorsFile& file, const ModelDeclaration& model) {
  bool any = false, some_are_there = false;
  for (const ParameterSpec& spec : model.parameters) {
    if (!IsOptional(model, spec.name)) continue;
    any = true;
    some_are_there |= file.tensors().contains(spec.name);
  }
  return any && !some_are_there;
}

// Whether what the model computes depends on it.
bool Counts(const BufferSpec& spec) { return !spec.name.ends_with("num_batches_tracked"); }

// For whoever wonders what a run has begun with.
void TellOfOptional(const std::string& where, const SafetensorsFile& file, const ModelDeclaration& model) {
  std::vector<std::string> lacking, passed, statistics;
  std::set<std::string> known;
  for (const ParameterSpec& spec : model.parameters) {
    known.insert(spec.name);
    if (!file.tensors().contains(spec.name)) lacking.push_back(spec.name);
  }
  for (const BufferSpec& spec : model.buffers) {
    known.insert(spec.name);
    if (Counts(spec) && !file.tensors().contains(spec.name)) statistics.push_back(spec.name);
  }
  for (const auto& [name, tensor] : file.tensors()) {
    if (!known.contains(name) && IsOptional(model, name)) passed.push_back(name);
  }
  if (!statistics.empty())
    std::fprintf(stderr, "note: %s: without %s: they begin as those of a model that has seen nothing\n", where.c_str(),
                 FirstOf(statistics).c_str());
  if (!lacking.empty())
    std::fprintf(stderr, "note: %s: without %s: they begin as run.seed has drawn them\n", where.c_str(),
                 FirstOf(lacking).c_str());
  if (!passed.empty())
    std::fprintf(stderr, "note: %s: passed over, since this run has no such part: %s\n", where.c_str(),
                 FirstOf(passed).c_str());
}

// Whether the file has parameters that no stage of the run trains: they are used as they are.
bool HasRestingParts(const SafetensorsFile& file, const ModelDeclaration& model, const Config& config) {
  const std::vector<Stage> stages = StagesOf(config);
  const auto rests = [&](const ParameterSpec& spec) {
    return std::ranges::none_of(stages, [&](const Stage& stage) { return IsTrained(spec, stage.trainable); });
  };
  return std::ranges::any_of(model.parameters, [&](const ParameterSpec& spec) {
    return spec.trainable && file.tensors().contains(spec.name) && rests(spec);
  });
}

// Whose shapes fit may still be another model. A run may begin with its weights all the same, and train them; what is
// used as it is has to be what it was trained in, as of a checkpoint.
void TellOfOrigin(const std::string& where, const SafetensorsFile& file, WeightsUse use, const ModelDeclaration& model,
                  const Config& config) {
  OtherOrigin other = OtherThanInFile(file.metadata(), config);
  const bool rests = use == WeightsUse::kStart && HasRestingParts(file, model, config);
  if (use == WeightsUse::kAsTheyAre) other.model.insert(other.model.end(), other.task.begin(), other.task.end());
  if (!other.model.empty() && (use == WeightsUse::kAsTheyAre || rests))
    throw ConfigError(where + " holds another model; " + Join(other.model, "; ") +
                      ". Give the values that it was trained with" +
                      (rests ? ": some of its weights are trained by no stage of this run" : ""));
  if (!other.model.empty())
    std::fprintf(stderr, "note: %s: trained in another model; %s\n", where.c_str(), Join(other.model, "; ").c_str());
  if (!other.data.empty())
    std::fprintf(stderr, "note: %s: trained on data that were read otherwise; %s\n", where.c_str(),
                 Join(other.data, "; ").c_str());
}

// What in the file is not the model's: names and shapes. Empty when it fits. A run may start without what is optional,
// and without statistics, which it gathers; what is evaluated as it is has both.
std::string MisfitOf(const SafetensorsFile& file, const ModelDeclaration& model, WeightsUse use) {
  const bool starts = use == WeightsUse::kStart, lacks = starts && LacksOptional(file, model);
  std::set<std::string> known;
  for (const auto& [name, id] : model.aliases) known.insert(name);
  const auto optional = [&](const std::string& name) { return IsOptional(model, name); };
  std::vector<std::string> missing, unexpected, shapes;
  const auto require_shape = [&](const std::string& name, const std::vector<int64_t>& shape) {
    const auto it = file.tensors().find(name);
    if (it == file.tensors().end() || it->second.shape == shape) return;
    shapes.push_back(name + " (" + ShapeText(it->second.shape) + " in the file, " + ShapeText(shape) +
                     " in the model)");
  };
  for (const BufferSpec& spec : model.buffers) {
    known.insert(spec.name);
    if (!starts && Counts(spec) && !file.tensors().contains(spec.name)) missing.push_back(spec.name);
    require_shape(spec.name, spec.shape);
  }
  for (const ParameterSpec& spec : model.parameters) {
    known.insert(spec.name);
    if (!file.tensors().contains(spec.name) && !(lacks && optional(spec.name))) missing.push_back(spec.name);
    require_shape(spec.name, spec.shape);
  }
  for (const auto& [name, id] : model.aliases)
    require_shape(name, model.parameters[static_cast<size_t>(id.index)].shape);
  for (const auto& [name, tensor] : file.tensors()) {
    if (!known.contains(name) && !optional(name)) unexpected.push_back(name);
  }
  std::string problems;
  if (!missing.empty()) problems += "; missing: " + FirstOf(missing);
  if (!unexpected.empty()) problems += "; unexpected: " + FirstOf(unexpected);
  if (!shapes.empty()) problems += "; of another shape: " + FirstOf(shapes);
  return problems;
}

}  // namespace

void LoadWeights(const std::string& field, const std::string& path, WeightsUse use, const Config& config,
                 Engine& engine, const Tick& tick) try {
  if (!fs::is_regular_file(LookAt(path))) throw ConfigError(field + ": " + path + ": no such file");
  const SafetensorsFile file(path);
  const ModelDeclaration& model = engine.declaration();
  const std::string misfit = MisfitOf(file, model, use);
  if (!misfit.empty()) throw ConfigError(field + ": " + path + misfit);
  TellOfOptional(field + ": " + path, file, model);
  TellOfOrigin(field + ": " + path, file, use, model, config);
  for (size_t i = 0; i < model.parameters.size(); ++i) {
    if (!file.tensors().contains(model.parameters[i].name)) continue;  // MisfitOf: it may
    const std::vector<float> values = file.Floats(model.parameters[i].name, tick);
    RequireFinite(field + ": " + path + ": " + model.parameters[i].name, values);
    engine.SetParameter({static_cast<int32_t>(i)}, values);
    for (const auto& [name, id] : model.aliases) {
      if (static_cast<size_t>(id.index) != i || !file.tensors().contains(name)) continue;
      if (file.Floats(name, tick) != values)
        throw ConfigError(field + ": " + path + ": " + name + " is not " + model.parameters[i].name +
                          ", to which it is tied in this model");
    }
  }
  for (const StateSlice& slice : engine.Slices()) {
    const std::string name = slice.key.starts_with("buffer.") ? slice.key.substr(7) : "";
    if (name.empty() || !file.tensors().contains(name)) continue;
    std::vector<float> whole = file.Numbers(name, tick);
    RequireFinite(field + ": " + path + ": " + name, whole);
    slice.values.copy_(at::from_blob(whole.data() + slice.begin, slice.values.sizes(), at::kFloat));
  }
} catch (const DataError& error) {  // what a person has named, not what a run was to train on
  throw ConfigError(field + ": " + error.what());
} catch (const RefusedPathError& refused) {
  throw ConfigError(field + ": " + refused.what());
}

}  // namespace trainyard
