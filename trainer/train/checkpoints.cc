#include "trainer/train/checkpoints.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "trainer/base/environment.h"
#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/stop_signal.h"
#include "trainer/base/text.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/config/load.h"
#include "trainer/kernels/kernels.h"
#include "trainer/train/run_directory.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;
constexpr std::chrono::seconds kStoreDeadline(300);

// What of the engine a checkpoint fills; `prefix` chooses the keys.
std::map<std::string, TensorTarget> TargetsOf(Engine& engine, const std::string& prefix) {
  std::map<std::string, TensorTarget> targets;
  for (const StateSlice& slice : engine.Slices()) {
    if (slice.key.starts_with(prefix)) targets[slice.key] = {slice.shape, slice.values};
  }
  return targets;
}

std::string Threads() { return EnvText("OMP_NUM_THREADS").empty() ? "auto" : EnvText("OMP_NUM_THREADS"); }

// What a resumed run does differently from the one that saved; empty when its bits are the same.
std::string Differences(const Json& saved, const Session& session) {
  std::vector<std::string> parts;
  auto compare = [&](const char* name, const std::string& before, const std::string& now) {
    if (before != now) parts.push_back(std::string(name) + " " + before + " -> " + now);
  };
  compare("world", std::to_string(saved.value("world", 0)), std::to_string(session.world.size));
  compare("threads", saved.value("threads", ""), Threads());
  compare("kernels", saved.value("kernels", ""), kernels::Kernels().name);
  return parts.empty() ? "" : "not bit-exact with an uninterrupted run, because " + Join(parts);
}

bool IsAuto(const Config& config) { return config.checkpoint.resume == "auto" || config.checkpoint.resume.empty(); }

Choice Choose(const Config& config) {
  if (config.checkpoint.resume == "never") return {};
  if (IsAuto(config)) return ChooseCheckpoint(config.checkpoint.dir);
  return {VerifyCheckpoint(config.checkpoint.resume), {}};
}

// Rank 0's side; what the others are told is JSON.
Json FindResume(const Config& config, const std::string& fingerprint, const Session& session) {
  const Choice choice = Choose(config);
  std::string message;
  for (const std::string& line : choice.skipped) message += "skipped " + line + "\n";
  if (!choice.found) return {{"step", 0}, {"message", message + "starting from scratch"}};
  const Json& saved = choice.found->manifest.state;
  const std::string path = choice.found->path.string();
  const std::vector<std::string> warnings =
      RequireSameIdentity("checkpoint " + path, saved.at("config").dump(),
                          saved.at("data_fingerprint").get<std::string>(), config, fingerprint);
  if (const auto batch = saved.at("global_batch").get<int64_t>();
      config.batch.global && *config.batch.global != batch) {
    throw ConfigError(Format("batch.global: the checkpoint %s was made with %lld, here %lld", path.c_str(),
                             static_cast<long long>(batch), static_cast<long long>(*config.batch.global)));
  }
  message += "resuming from " + path;
  const std::string differences = Differences(saved, session);
  if (!differences.empty()) message += "; " + differences;
  return {{"step", choice.found->manifest.step}, {"path", path},       {"global_batch", saved.at("global_batch")},
          {"train", saved.at("train")},          {"message", message}, {"warnings", warnings}};
}

}  // namespace

Resume ChooseResume(const Config& config, const std::string& fingerprint, Session& session) {
  Json found;
  if (session.world.rank == 0) {
    found = FindResume(config, fingerprint, session);
    session.store->Set("resume", found.dump());
  } else {
    found = Json::parse(session.store->Wait("resume", kStoreDeadline, "rank 0 to choose a checkpoint", StopRequested));
  }
  Resume resume;
  resume.step = found["step"].get<int64_t>();
  resume.message = found["message"].get<std::string>();
  if (resume.step > 0) {
    resume.global_batch = found["global_batch"].get<int64_t>();
    resume.train = TrainState::FromJson(found["train"]);
    resume.warnings = found["warnings"].get<std::vector<std::string>>();
  }
  return resume;
}

Checkpoints::Checkpoints(const Config& config, const Plan& plan, const std::string& fingerprint, Engine& engine,
                         Session& session, const Resume& resume)
    : config_(config),
      plan_(plan),
      fingerprint_(fingerprint),
      engine_(&engine),
      session_(session),
      last_saved_(resume.step > 0 && !IsAuto(config) ? -1 : resume.step),
      resume_path_(resume.step > 0 ? (IsAuto(config) ? config.checkpoint.dir + "/" + StepName(resume.step)
                                                     : config.checkpoint.resume)
                                   : ""),
      writer_({.directory = config.checkpoint.dir,
               .writer = {session.job_uid, session.attempt},
               .rank = session.world.rank,
               .world = session.world.size,
               .keep_last = config.checkpoint.keep_last,
               .keep_every = config.checkpoint.keep_every},
              session.store) {
  const fs::path directory = config.checkpoint.dir;
  const std::string nonce =
      Format(".nonce-%s-%lld", session.job_uid.substr(0, 8).c_str(), static_cast<long long>(session.attempt));
  if (session.world.rank == 0) {
    Fence::Take(directory, {session.job_uid, session.attempt}, resume.step);
    for (const auto& entry : fs::directory_iterator(directory)) {
      // What an attempt that is over had not finished.
      const std::string name = entry.path().filename();
      std::error_code ignored;
      if (name.find(".tmp-") != std::string::npos || name.starts_with(".nonce-")) fs::remove_all(entry.path(), ignored);
    }
    WriteFileAtomic(directory / nonce, "\n");
    session.store->Set("nonce", nonce);
  }
  session.store->Wait("nonce", kStoreDeadline, "rank 0 to take the checkpoints' fence", StopRequested);
  double missing = fs::exists(directory / nonce) ? 0 : 1;
  session.communicator->AllReduceNow(std::span(&missing, 1), "shared checkpoint directory");
  shared_ = missing == 0;
  std::error_code ignored;
  if (session.world.rank == 0) fs::remove(directory / nonce, ignored);
  if (!shared_) fs::create_directories(directory, ignored);
}

void Checkpoints::Load() {
  Communicator& communicator = *session_.communicator;
  double failed = 0;
  std::exception_ptr error;
  if (session_.world.rank == 0) {
    try {
      if (!resume_path_.empty()) {
        LoadTensors(VerifyCheckpoint(resume_path_), TargetsOf(*engine_, ""));
      } else if (!config_.init.from.empty()) {
        LoadWeights(config_.init.from, *engine_);
      }
    } catch (...) {
      error = std::current_exception();
      failed = 1;
    }
  }
  communicator.AllReduceNow(std::span(&failed, 1), "loading");
  if (error) std::rethrow_exception(error);
  if (failed > 0) throw PeerError("rank 0 could not load the weights");
  for (const StateSlice& slice : engine_->Slices()) {
    at::Tensor values = at::from_blob(slice.values.data(), {slice.end - slice.begin}, at::kFloat);
    communicator.Wait(communicator.Broadcast(values, 0, "loading"));
  }
  engine_->Publish();
}

void Checkpoints::SetEngine(Engine& engine) {
  writer_.WaitCopied();
  engine_ = &engine;
}

std::vector<SourceSlice> Checkpoints::Slices() const {
  // What every rank holds is written by all of them, an equal part each; without a common directory rank 0 writes all.
  const int64_t rank = session_.world.rank, world = session_.world.size;
  std::vector<SourceSlice> slices;
  for (const StateSlice& slice : engine_->Slices()) {
    const int64_t size = slice.end - slice.begin;
    int64_t from = 0, to = size;
    if (slice.replicated && shared_) {
      from = size * rank / world;
      to = size * (rank + 1) / world;
    } else if (slice.replicated && rank != 0) {
      continue;
    }
    if (from < to)
      slices.push_back({slice.key, slice.shape, slice.begin + from, slice.begin + to, slice.values.data() + from});
  }
  return slices;
}

void Checkpoints::Begin(const TrainState& train) {
  const Json state = {{"epoch", train.step / plan_.steps_per_epoch},
                      {"cursor", train.step * plan_.global_batch},
                      {"seed", config_.run.seed},
                      {"world", session_.world.size},
                      {"global_batch", plan_.global_batch},
                      {"micro", plan_.micro},
                      {"stage", "ddp"},
                      {"threads", Threads()},
                      {"kernels", kernels::Kernels().name},
                      {"versions", {{"trainyard", "0.1.0"}, {"libtorch", "2.11.0"}}},
                      {"config", ToJson(config_)},
                      {"data_fingerprint", fingerprint_},
                      {"evaluation_pending", train.evaluation_pending},
                      {"train", train.ToJson()}};
  writer_.Begin(train.step, Slices(), state);
  last_saved_ = train.step;
}

void Checkpoints::MaybeSave(const TrainState& train) {
  if (config_.checkpoint.every == 0 || train.step % config_.checkpoint.every != 0 || train.step == last_saved_) return;
  Begin(train);
}

void Checkpoints::SaveNow(const TrainState& train) {
  if (train.step != last_saved_) Begin(train);
  writer_.Finish();
}

void ExportModel(Engine& engine, const std::string& path) {
  const std::vector<ExportedTensor> tensors = engine.Export();
  std::vector<SafetensorsEntry> entries;
  for (const ExportedTensor& tensor : tensors) entries.push_back({tensor.name, tensor.shape, tensor.values});
  fs::create_directories(fs::path(path).parent_path());
  const std::string temporary = path + ".tmp";
  WriteSafetensors(temporary, entries, {{"format", "pt"}});
  std::error_code error;
  fs::rename(temporary, path, error);
  if (error) throw StorageError("cannot write " + path + ": " + error.message());
}

void LoadModel(const std::string& path, const Config& config, const std::string& fingerprint, Engine& engine) {
  if (!fs::is_directory(path)) return LoadWeights(path, engine);
  Choice choice;
  if (fs::exists(fs::path(path) / "manifest.json")) {
    choice.found = VerifyCheckpoint(path);
  } else {
    choice = ChooseCheckpoint(path);
  }
  if (!choice.found) throw ConfigError("--checkpoint: " + path + " holds no checkpoint");
  const Json& saved = choice.found->manifest.state;
  RequireSameIdentity("--checkpoint: " + path, saved.at("config").dump(),
                      saved.at("data_fingerprint").get<std::string>(), config, fingerprint);
  std::map<std::string, TensorTarget> targets = TargetsOf(engine, "model.");
  targets.merge(TargetsOf(engine, "buffer."));
  LoadTensors(*choice.found, targets);
  engine.Publish();
}

namespace {

// "[64, 3]"
std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "[" : ", ") + std::to_string(size);
  return (text.empty() ? "[" : text) + "]";
}

}  // namespace

void LoadWeights(const std::string& path, Engine& engine) {
  const SafetensorsFile file(path);
  const ModelDeclaration& model = engine.declaration();
  std::set<std::string> known;
  for (const auto& [name, id] : model.aliases) known.insert(name);
  for (const BufferSpec& spec : model.buffers) known.insert(spec.name);
  std::vector<std::string> missing, unexpected, shapes;
  for (const ParameterSpec& spec : model.parameters) {
    known.insert(spec.name);
    const auto it = file.tensors().find(spec.name);
    if (it == file.tensors().end()) {
      missing.push_back(spec.name);
    } else if (it->second.shape != spec.shape) {
      shapes.push_back(spec.name + " (" + ShapeText(it->second.shape) + " in the file, " + ShapeText(spec.shape) +
                       " in the model)");
    }
  }
  for (const auto& [name, tensor] : file.tensors()) {
    if (!known.contains(name)) unexpected.push_back(name);
  }
  std::string problems;
  if (!missing.empty()) problems += "; missing: " + Join(missing);
  if (!unexpected.empty()) problems += "; unexpected: " + Join(unexpected);
  if (!shapes.empty()) problems += "; of another shape: " + Join(shapes);
  if (!problems.empty()) throw ConfigError("init.from: " + path + problems);
  for (size_t i = 0; i < model.parameters.size(); ++i)
    engine.SetParameter({static_cast<int32_t>(i)}, file.Floats(model.parameters[i].name));
  engine.Publish();
}

}  // namespace trainyard
