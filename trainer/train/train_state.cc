#include "trainer/train/train_state.h"

#include <cmath>
#include <cstdlib>

#include "trainer/base/text.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

// JSON has no infinity, and a double must come back to the bit: hexadecimal text.
Json Exact(double value) { return Format("%a", value); }
double FromExact(const Json& json) { return std::strtod(json.get<std::string>().c_str(), nullptr); }

}  // namespace

void TrainState::BeginStage(int64_t next) {
  stage = next;
  clean_steps = 0;
  plateau = {};
  early_stop = {};
  best = std::numeric_limits<double>::infinity();
  best_step = 0;
}

Json TrainState::ToJson() const {
  return {{"step", step},
          {"stage", stage},
          {"clean_steps", clean_steps},
          {"skipped_in_row", skipped_in_row},
          {"plateau", {{"multiplier", Exact(plateau.multiplier)}, {"best", Exact(plateau.best)}, {"bad", plateau.bad}}},
          {"early_stop", {{"best", Exact(early_stop.best)}, {"bad", early_stop.bad}}},
          {"ended_early", ended_early},
          {"best", Exact(best)},
          {"best_step", best_step},
          {"evaluation_pending", evaluation_pending}};
}

TrainState TrainState::FromJson(const Json& json) {
  TrainState state;
  state.step = json.at("step").get<int64_t>();
  state.stage = json.value("stage", int64_t{0});  // older checkpoints knew one stage
  state.clean_steps = json.at("clean_steps").get<int64_t>();
  state.skipped_in_row = json.at("skipped_in_row").get<int64_t>();
  state.plateau = {FromExact(json.at("plateau").at("multiplier")), FromExact(json.at("plateau").at("best")),
                   json.at("plateau").at("bad").get<int64_t>()};
  state.early_stop = {FromExact(json.at("early_stop").at("best")), json.at("early_stop").at("bad").get<int64_t>()};
  state.ended_early = json.at("ended_early").get<bool>();
  state.best = FromExact(json.at("best"));
  state.best_step = json.at("best_step").get<int64_t>();
  state.evaluation_pending = json.at("evaluation_pending").get<bool>();
  return state;
}

}  // namespace trainyard
