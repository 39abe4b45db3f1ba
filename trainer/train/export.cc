#include "trainer/train/export.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/hash.h"
#include "trainer/base/temporary_name.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/config/load.h"
#include "trainer/kernels/kernels.h"
#include "trainer/model/initialize_together.h"
#include "trainer/model/with_kernels.h"
#include "trainer/task/tasks.h"
#include "trainer/train/frozen.h"
#include "trainer/train/plan.h"
#include "trainer/train/run_directory.h"
#include "trainer/train/saved_state.h"
#include "trainer/train/weights_origin.h"

namespace trainyard {
namespace {

// Calls for each tensor of the file, in its order.
template <class Parameter, class Buffer>
void ForEachTensor(const ModelDeclaration& model, const Parameter& parameter, const Buffer& buffer) {
  for (size_t i = 0; i < model.parameters.size(); ++i)
    parameter(model.parameters[i].name, ParameterId{static_cast<int32_t>(i)});
  for (const auto& [name, id] : model.aliases) parameter(name, id);
  for (size_t i = 0; i < model.buffers.size(); ++i) buffer(model.buffers[i].name, BufferId{static_cast<int32_t>(i)});
}

std::vector<SafetensorsHead> HeadsOf(const ModelDeclaration& model) {
  std::vector<SafetensorsHead> heads;
  ForEachTensor(
      model,
      [&](const std::string& name, ParameterId id) {
        heads.push_back({name, model.parameter(id).shape});
      },
      [&](const std::string& name, BufferId id) {
        heads.push_back({name, model.buffers[static_cast<size_t>(id.index)].shape});
      });
  return heads;
}

// `source` has Engine's two Read.
template <class Source>
Replacement WriteModel(const fs::path& path, const Config& config, const ModelDeclaration& model, Source& source,
                       const Tick& tick = {}) {
  return Replacement(path, [&](const fs::path& temporary) {
    SafetensorsOutput file(temporary, HeadsOf(model), WeightsMetadata(config), tick);
    const Pieces piece = [&](std::span<const float> values) { file.Write(values); };
    const auto write = [&](const std::string&, auto id) { source.Read(id, piece); };
    ForEachTensor(model, write, write);
    file.Close();
  });
}

// An engine, read by all ranks in the order of the file.
class EngineSource {
 public:
  explicit EngineSource(Engine& engine) : engine_(engine) {}

  template <class Id>
  void Read(Id id, const Pieces& piece) {
    ++read_;
    engine_.Read(id, piece);
  }
  // What is left, for nothing: the others count on it.
  void ReadRest() {
    size_t tensor = 0;
    const auto rest = [&](const std::string&, auto id) {
      if (tensor++ >= read_) engine_.Read(id, {});
    };
    ForEachTensor(engine_.declaration(), rest, rest);
  }

 private:
  Engine& engine_;
  size_t read_ = 0;
};

class CheckpointSource {
 public:
  CheckpointSource(const OpenCheckpoint& checkpoint, const ModelDeclaration& model, const Config& config,
                   std::unique_ptr<SafetensorsFile> frozen)
      : checkpoint_(checkpoint), model_(model), config_(config), frozen_(std::move(frozen)) {}

  void Read(ParameterId id, const Pieces& piece) {
    const ParameterSpec& spec = model_.parameter(id);
    piece(spec.trainable ? Saved(WeightsKey(checkpoint_, spec.name), spec.shape, spec.numel()) : Frozen(spec));
  }
  void Read(BufferId id, const Pieces& piece) {
    const BufferSpec& spec = model_.buffers[static_cast<size_t>(id.index)];
    piece(Saved("buffer." + spec.name, spec.shape, spec.numel()));
  }

 private:
  std::span<const float> Saved(const std::string& key, const std::vector<int64_t>& shape, int64_t numel) {
    values_.resize(static_cast<size_t>(numel));
    LoadTensors(checkpoint_, {{key, {shape, values_}}});
    return values_;
  }
  std::span<const float> Frozen(const ParameterSpec& spec) {
    if (frozen_) {
      values_ = frozen_->Floats(spec.name);
    } else {
      values_.resize(static_cast<size_t>(spec.numel()));
      FillInitialTogether(spec, static_cast<uint64_t>(config_.run.seed), values_);
    }
    Round(TypeOf(spec.dtype, PrecisionOf(config_)));  // as the run held it
    return values_;
  }
  void Round(at::ScalarType type) {
    if (type == at::kFloat) return;
    WithKernels(type, [&]<class T>(const kernels::Typed<T>& kernels) {
      std::vector<T> rounded(values_.size());
      const auto size = static_cast<int64_t>(rounded.size());
      kernels.round(values_.data(), rounded.data(), size);
      std::fill(values_.begin(), values_.end(), -0.f);  // what leaves every other float as it is
      kernels.add(rounded.data(), values_.data(), size);
    });
  }

  const OpenCheckpoint& checkpoint_;
  const ModelDeclaration& model_;
  const Config& config_;
  std::unique_ptr<SafetensorsFile> frozen_;
  std::vector<float> values_;
};

// Null: the model has no frozen parameters, or they are the seed's.
std::unique_ptr<SafetensorsFile> OpenSource(const SavedState& saved, const ModelDeclaration& model,
                                            const Config& config, const std::string& init_from) try {
  const std::string checksum = InitFromChecksum(saved.data_fingerprint);
  const std::string path = init_from.empty() ? config.init.from : init_from,
                    field = init_from.empty() ? "init.from: " : "--init-from: ",
                    remedy =
                        "; the frozen parameters are in no checkpoint: name the file that the run started from "
                        "with --init-from";
  if (!HasFrozen(model) || (init_from.empty() && checksum.empty())) return nullptr;
  if (checksum.empty())
    throw ConfigError(field + "the run had no init.from; its frozen parameters are those of its seed");
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) throw ConfigError(field + path + ": no such file" + remedy);
  if (const std::string found = HexDigest(InputFile(path).Checksum()); found != checksum)
    throw ConfigError(field + path + ": its checksum is " + found + ", the run's was " + checksum + remedy);
  return OpenFrozen(path, model);
} catch (const RefusedPathError& refused) {
  throw ConfigError(std::string(init_from.empty() ? "init.from: " : "--init-from: ") + refused.what());
}

// An export takes the place of an earlier one, and of nothing else.
void RequireReplaceable(const fs::path& out) {
  std::error_code ignored;
  const fs::file_status there = fs::symlink_status(out, ignored);
  const std::string what = "--out: " + out.string();
  if (fs::exists(fs::absolute(out).parent_path() / "manifest.json", ignored))
    throw ConfigError(what + ": lies in a checkpoint, which would be damaged");
  if (!fs::exists(there)) return;
  if (!fs::is_regular_file(there))
    throw ConfigError(what + ": is no regular file, and would be replaced; name another");
  try {
    SafetensorsFile{InputFile(out)};
  } catch (const Error&) {
    throw ConfigError(what + ": is no export, and would be overwritten; name another file, or remove it");
  }
}

}  // namespace

Replacement ExportModel(Engine& engine, const Config& config, const std::string& path, const Tick& tick) {
  EngineSource source(engine);
  try {
    fs::create_directories(fs::path(path).parent_path());
    return WriteModel(path, config, engine.declaration(), source, tick);
  } catch (...) {
    // Also behind a PeerError: it may be the store's, of which the others know nothing.
    try {
      source.ReadRest();
    } catch (const PeerError&) {  // Then nobody waits there.
    }
    throw;
  }
}

void TakePartInExport(Engine& engine) { EngineSource(engine).ReadRest(); }

void RemoveUnfinishedExports(const fs::path& run_dir, const Tick& tick) {
  for (const char* folder : {"export", "best"}) {
    std::error_code error;
    for (fs::recursive_directory_iterator it(run_dir / folder, error), end; !error && it != end; it.increment(error)) {
      tick();
      std::error_code ignored;
      if (IsTemporaryName(it->path().filename().string())) fs::remove(it->path(), ignored);
    }
  }
}

void ExportCheckpoint(const std::string& path, const std::string& out, const std::string& init_from) {
  const fs::path folder = fs::absolute(out).parent_path();
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) throw ConfigError("--out: " + folder.string() + ": no such directory");
  RequireReplaceable(out);
  const OpenCheckpoint checkpoint = FindCheckpoint("checkpoint export", path);
  const SavedState saved = SavedStateOf(checkpoint);
  const Config config =
      ParseConfig(saved.config.dump(), (checkpoint.path / "manifest.json").string(), {}, TaskDeclarations());
  ModelDeclaration model;
  DeclareModel(config, model);
  CheckpointSource source(checkpoint, model, config, OpenSource(saved, model, config, init_from));
  WriteModel(out, config, model, source).Commit();
  std::printf("%s: %zu tensors of %s\n", out.c_str(), HeadsOf(model).size(), checkpoint.path.c_str());
}

}  // namespace trainyard
