#include "trainer/train/saved_state.h"

#include "trainer/base/error.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;
constexpr int64_t kMostBatch = int64_t{1} << 24;  // batch.global's

SavedState Read(const Json& state, int64_t step) {
  SavedState saved;
  saved.config = state.at("config");
  saved.data_fingerprint = state.at("data_fingerprint").get<std::string>();
  saved.global_batch = state.at("global_batch").get<int64_t>();
  saved.train = TrainState::FromJson(state.at("train"));
  if (const auto cache = state.find("cache"); cache != state.end())
    saved.window.emplace(cache->at("N").get<int64_t>(), cache->at("R").get<int64_t>());
  saved.bits = state.value("bits", Json::object());
  if (!saved.config.is_object()) throw StorageError("config is no object");
  if (saved.global_batch < 1 || saved.global_batch > kMostBatch)
    throw StorageError("global_batch is " + std::to_string(saved.global_batch));
  if (saved.train.step != step) throw StorageError("train.step is " + std::to_string(saved.train.step));
  return saved;
}

}  // namespace

std::string WeightsKey(const OpenCheckpoint& checkpoint, const std::string& parameter) {
  const std::string average = "ema." + parameter;
  return checkpoint.manifest.tensors.contains(average) ? average : "model." + parameter;
}

SavedState SavedStateOf(const OpenCheckpoint& checkpoint) {
  try {
    return Read(checkpoint.manifest.state, checkpoint.manifest.step);
  } catch (const std::exception& error) {
    throw DamagedError((checkpoint.path / "manifest.json").string() + ": not the state of a run at step " +
                       std::to_string(checkpoint.manifest.step) + ": " + error.what());
  }
}

}  // namespace trainyard
