#include "trainer/train/train_state.h"

#include <cmath>
#include <cstdlib>

#include "trainer/base/error.h"
#include "trainer/base/text.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

// JSON has no infinity, and a double must come back to the bit: hexadecimal text.
Json Exact(double value) { return Format("%a", value); }
double FromExact(const Json& json, const char* key) {
  const auto text = json.at(key).get<std::string>();
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || std::isnan(value)) throw StorageError(Format("%s is %s", key, text.c_str()));
  return value;
}

int64_t Count(const Json& json, const char* key) {
  const auto value = json.at(key).get<int64_t>();
  if (value < 0) throw StorageError(Format("%s is %lld", key, static_cast<long long>(value)));
  return value;
}

Json ToJson(const std::optional<LossScale>& scale) {
  return scale ? Json{{"factor", Exact(scale->factor)}, {"clean", scale->clean}} : Json();
}

std::optional<LossScale> LossScaleOf(const Json& json) {
  const auto scale = json.find("loss_scale");  // older checkpoints knew none
  if (scale == json.end() || scale->is_null()) return std::nullopt;
  const double factor = FromExact(*scale, "factor");
  int exponent = 0;
  if (std::frexp(factor, &exponent) != 0.5 || exponent < 1 || exponent > std::numeric_limits<float>::max_exponent)
    throw StorageError(Format("loss_scale is %g", factor));
  return LossScale{factor, Count(*scale, "clean")};
}

}  // namespace

void TrainState::BeginStage(int64_t next) {
  stage = next;
  clean_steps = 0;
  plateau = {};
  early_stop = {};
  ForgetBest();
}

void TrainState::ForgetBest() {
  best = std::numeric_limits<double>::infinity();
  best_step = 0;
}

Json TrainState::ToJson() const {
  return {{"step", step},
          {"stage", stage},
          {"clean_steps", clean_steps},
          {"skipped_in_row", skipped_in_row},
          {"loss_scale", trainyard::ToJson(loss_scale)},
          {"plateau", {{"multiplier", Exact(plateau.multiplier)}, {"best", Exact(plateau.best)}, {"bad", plateau.bad}}},
          {"early_stop", {{"best", Exact(early_stop.best)}, {"bad", early_stop.bad}}},
          {"ended_early", ended_early},
          {"best", Exact(best)},
          {"best_step", best_step},
          {"evaluation_pending", evaluation_pending},
          {"lr_world", lr_world}};
}

TrainState TrainState::FromJson(const Json& json) {
  TrainState state;
  const Json &plateau = json.at("plateau"), &early_stop = json.at("early_stop");
  state.step = Count(json, "step");
  state.stage = json.contains("stage") ? Count(json, "stage") : 0;  // older checkpoints knew one stage
  state.clean_steps = Count(json, "clean_steps");
  state.skipped_in_row = Count(json, "skipped_in_row");
  state.loss_scale = LossScaleOf(json);
  state.plateau = {FromExact(plateau, "multiplier"), FromExact(plateau, "best"), Count(plateau, "bad")};
  state.early_stop = {FromExact(early_stop, "best"), Count(early_stop, "bad")};
  state.ended_early = json.at("ended_early").get<bool>();
  state.best = FromExact(json, "best");
  state.best_step = Count(json, "best_step");
  state.evaluation_pending = json.at("evaluation_pending").get<bool>();
  state.lr_world = json.contains("lr_world") ? Count(json, "lr_world") : 0;  // older checkpoints: `bits` has it
  return state;
}

}  // namespace trainyard
