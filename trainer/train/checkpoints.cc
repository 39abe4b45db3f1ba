#include "trainer/train/checkpoints.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

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
constexpr const char* kPrefixes[] = {"model.", "adamw.exp_avg.", "adamw.exp_avg_sq."};

std::map<std::string, TensorTarget> TargetsOf(const FlatLayout& layout, const std::string& prefix,
                                              const at::Tensor& flat) {
  std::map<std::string, TensorTarget> targets;
  for (size_t i = 0; i < layout.parameters().size(); ++i) {
    const Range range = layout.range(i);
    targets[prefix + layout.parameters()[i].name] = {
        layout.parameters()[i].shape,
        Floats(flat).subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.size()))};
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

Checkpoints::Checkpoints(const Config& config, const Plan& plan, const std::string& fingerprint, FlatState& state,
                         Session& session, const Resume& resume)
    : config_(config),
      plan_(plan),
      fingerprint_(fingerprint),
      state_(state),
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
        std::map<std::string, TensorTarget> targets = TargetsOf(state_.layout(), kPrefixes[0], state_.master);
        targets.merge(TargetsOf(state_.layout(), kPrefixes[1], state_.exp_avg));
        targets.merge(TargetsOf(state_.layout(), kPrefixes[2], state_.exp_avg_sq));
        LoadTensors(VerifyCheckpoint(resume_path_), targets);
      } else if (!config_.init.from.empty()) {
        LoadWeights(config_.init.from, state_);
      }
    } catch (...) {
      error = std::current_exception();
      failed = 1;
    }
  }
  communicator.AllReduceNow(std::span(&failed, 1), "loading");
  if (error) std::rethrow_exception(error);
  if (failed > 0) throw PeerError("rank 0 could not load the weights");
  for (at::Tensor* flat : {&state_.master, &state_.exp_avg, &state_.exp_avg_sq}) {
    communicator.Wait(communicator.Broadcast(*flat, 0, "loading"));
  }
  state_.PublishParameters();
}

std::vector<SourceSlice> Checkpoints::Slices() const {
  const FlatLayout& layout = state_.layout();
  std::vector<SourceSlice> slices;
  // Writing is split evenly; without a common directory rank 0 writes all.
  const Range mine = shared_                    ? layout.Shard(session_.world.rank)
                     : session_.world.rank == 0 ? Range{0, layout.total()}
                                                : Range{0, 0};
  const at::Tensor* flats[] = {&state_.master, &state_.exp_avg, &state_.exp_avg_sq};
  for (size_t k = 0; k < 3; ++k) {
    for (size_t i = 0; i < layout.parameters().size(); ++i) {
      const Range range = layout.range(i);
      const Range part{std::max(range.begin, mine.begin), std::min(range.end, mine.end)};
      if (part.begin >= part.end) continue;
      slices.push_back({kPrefixes[k] + layout.parameters()[i].name, layout.parameters()[i].shape,
                        part.begin - range.begin, part.end - range.begin, flats[k]->data_ptr<float>() + part.begin});
    }
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

void ExportModel(const FlatState& state, const std::string& path) {
  std::vector<SafetensorsEntry> entries;
  const FlatLayout& layout = state.layout();
  for (size_t i = 0; i < layout.parameters().size(); ++i) {
    const Range range = layout.range(i);
    entries.push_back(
        {layout.parameters()[i].name, layout.parameters()[i].shape,
         Floats(state.master).subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.size()))});
  }
  fs::create_directories(fs::path(path).parent_path());
  const std::string temporary = path + ".tmp";
  WriteSafetensors(temporary, entries, {{"format", "pt"}});
  std::error_code error;
  fs::rename(temporary, path, error);
  if (error) throw StorageError("cannot write " + path + ": " + error.message());
}

void LoadModel(const std::string& path, const Config& config, const std::string& fingerprint, FlatState& state) {
  if (!fs::is_directory(path)) return LoadWeights(path, state);
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
  LoadTensors(*choice.found, TargetsOf(state.layout(), kPrefixes[0], state.master));
  state.PublishParameters();
}

namespace {

// "[64, 3]"
std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "[" : ", ") + std::to_string(size);
  return (text.empty() ? "[" : text) + "]";
}

}  // namespace

void LoadWeights(const std::string& path, FlatState& state) {
  const SafetensorsFile file(path);
  const FlatLayout& layout = state.layout();
  std::vector<std::string> missing, unexpected, shapes;
  for (const auto& [name, tensor] : file.tensors()) {
    const bool known = std::any_of(layout.parameters().begin(), layout.parameters().end(),
                                   [&, &n = name](const ParameterSpec& p) { return p.name == n; });
    if (!known) unexpected.push_back(name);
  }
  for (const ParameterSpec& spec : layout.parameters()) {
    const auto it = file.tensors().find(spec.name);
    if (it == file.tensors().end()) {
      missing.push_back(spec.name);
    } else if (it->second.shape != spec.shape) {
      shapes.push_back(spec.name + " (" + ShapeText(it->second.shape) + " in the file, " + ShapeText(spec.shape) +
                       " in the model)");
    }
  }
  std::string problems;
  if (!missing.empty()) problems += "; missing: " + Join(missing);
  if (!unexpected.empty()) problems += "; unexpected: " + Join(unexpected);
  if (!shapes.empty()) problems += "; of another shape: " + Join(shapes);
  if (!problems.empty()) throw ConfigError("init.from: " + path + problems);
  for (size_t i = 0; i < layout.parameters().size(); ++i) {
    const std::vector<float> values = file.Floats(layout.parameters()[i].name);
    std::copy(values.begin(), values.end(), Floats(state.master).begin() + layout.range(i).begin);
  }
  state.PublishParameters();
}

}  // namespace trainyard
