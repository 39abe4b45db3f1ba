#include "trainer/train/frozen.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <set>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/comm/rank_zero.h"

namespace trainyard {

bool HasFrozen(const ModelDeclaration& model) {
  return std::any_of(model.parameters.begin(), model.parameters.end(),
                     [](const ParameterSpec& spec) { return !spec.trainable; });
}

std::unique_ptr<SafetensorsFile> OpenFrozen(const std::string& path, const ModelDeclaration& model) try {
  static const std::set<std::string> floats = {"F32", "F64", "F16", "BF16"};
  if (!fs::exists(LookAt(path)))
    throw ConfigError("init.from: " + path +
                      ": no such file; the parameters that are not trained are in no checkpoint");
  auto file = std::make_unique<SafetensorsFile>(path);
  for (const ParameterSpec& spec : model.parameters) {
    if (spec.trainable) continue;
    const auto it = file->tensors().find(spec.name);
    if (it == file->tensors().end() || it->second.shape != spec.shape || !floats.contains(it->second.dtype))
      throw ConfigError("init.from: " + path + ": no " + spec.name + " of the model's shape, in a floating-point type");
  }
  return file;
} catch (const DataError& error) {  // what a person has named, not what a run was to train on
  throw ConfigError(std::string("init.from: ") + error.what());
} catch (const RefusedPathError& refused) {
  throw ConfigError(std::string("init.from: ") + refused.what());
}

void LoadFrom(const std::string& path, LoadedPart part, Engine& engine, Communicator& communicator,
              std::shared_ptr<Store> store, const LifeOptions& life) {
  const ModelDeclaration& model = engine.declaration();
  const bool frozen_only = part == LoadedPart::kFrozen;
  if (frozen_only && !HasFrozen(model)) return;
  RankZero rank_zero(std::make_shared<PrefixStore>(std::move(store), "frozen/"), communicator, life);
  const std::string what = frozen_only ? "reading the frozen parameters" : "reading the parameters";
  std::unique_ptr<SafetensorsFile> file;
  rank_zero.Do(what, [&](const Tick&) { file = OpenFrozen(path, model); });
  at::Tensor there = at::ones({std::ssize(model.parameters)}, at::kFloat);  // the others keep their initial values
  rank_zero.Do(what, [&](const Tick&) {
    for (size_t i = 0; i < model.parameters.size(); ++i)
      there[static_cast<int64_t>(i)] = file->tensors().contains(model.parameters[i].name) ? 1 : 0;
  });
  communicator.Wait(communicator.Broadcast(there, 0, "parameters"));
  for (size_t i = 0; i < model.parameters.size(); ++i) {
    const ParameterSpec& spec = model.parameters[i];
    if ((spec.trainable && frozen_only) || there[static_cast<int64_t>(i)].item<float>() == 0) continue;
    std::vector<float> values(static_cast<size_t>(spec.numel()));
    rank_zero.Do(what, [&](const Tick& tick) {
      values = {};  // two of them may be more than there is room for
      values = file->Floats(spec.name, tick);
    });
    at::Tensor tensor = at::from_blob(values.data(), {spec.numel()}, at::kFloat);
    communicator.Wait(communicator.Broadcast(tensor, 0, "parameters"));
    engine.SetParameter({static_cast<int32_t>(i)}, values);
  }
}

}  // namespace trainyard
