#include "trainer/train/frozen.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/checkpoint/safetensors.h"

namespace trainyard {
namespace {

std::unique_ptr<SafetensorsFile> Open(const std::string& path, const ModelDeclaration& model) {
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    throw ConfigError("init.from: " + path +
                      ": no such file; the parameters that are not trained are in no checkpoint");
  auto file = std::make_unique<SafetensorsFile>(path);
  for (const ParameterSpec& spec : model.parameters) {
    if (spec.trainable) continue;
    const auto it = file->tensors().find(spec.name);
    if (it == file->tensors().end() || it->second.shape != spec.shape)
      throw ConfigError("init.from: " + path + ": no " + spec.name + " of the model's shape");
  }
  return file;
}

}  // namespace

void LoadFrozen(const std::string& path, Engine& engine, Communicator& communicator) {
  const ModelDeclaration& model = engine.declaration();
  const auto frozen = [](const ParameterSpec& spec) { return !spec.trainable; };
  if (std::none_of(model.parameters.begin(), model.parameters.end(), frozen)) return;
  std::unique_ptr<SafetensorsFile> file;
  std::exception_ptr error;
  if (communicator.rank() == 0) {
    try {
      file = Open(path, model);
    } catch (...) {
      error = std::current_exception();
    }
  }
  double failed = error ? 1 : 0;
  communicator.AllReduceNow(std::span(&failed, 1), "frozen parameters");
  if (error) std::rethrow_exception(error);
  if (failed > 0) throw PeerError("rank 0 could not read the frozen parameters");
  for (size_t i = 0; i < model.parameters.size(); ++i) {
    const ParameterSpec& spec = model.parameters[i];
    if (spec.trainable) continue;
    std::vector<float> values =
        file ? file->Floats(spec.name) : std::vector<float>(static_cast<size_t>(spec.numel()), 0.f);
    at::Tensor tensor = at::from_blob(values.data(), {spec.numel()}, at::kFloat);
    communicator.Wait(communicator.Broadcast(tensor, 0, "frozen parameters"));
    engine.SetParameter({static_cast<int32_t>(i)}, values);
  }
}

}  // namespace trainyard
