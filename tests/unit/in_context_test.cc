#include "trainer/task/algorithm_distillation/in_context.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/unit/forwarding_weights.h"
#include "trainer/comm/communicator.h"
#include "trainer/device/host_device.h"
#include "trainer/parallel/engine.h"
#include "trainer/task/algorithm_distillation/distillation_evaluation.h"

namespace trainyard::ad {
namespace {

// A small model with random weights, and what an evaluation of it needs.
class InContextTest : public testing::Test {
 protected:
  explicit InContextTest(const std::string& mode = "standard") : config_(Choose(mode)) {}

  static Config Choose(const std::string& mode) {
    auto options = std::make_shared<Options>();
    options->mode = mode;
    options->eval_windows = 20;
    options->eval_plays = 10;
    options->eval_episodes = 3;
    options->model = {.context = mode == "standard" ? 24 : 164, .dim = 16, .layers = 2, .heads = 2};
    Config config;
    config.task.options = options;
    return config;
  }

  // All ranks of a world, one after another; their slots are summed as RunEvaluation does.
  std::pair<std::map<std::string, double>, std::string> Evaluate(int world) {
    std::vector<double> sum;
    std::unique_ptr<Evaluation> evaluation;
    for (int rank = 0; rank < world; ++rank) {
      evaluation = MakeInContextEvaluation({config_, model_, *engine_, windows_, set_, rank, world});
      for (int chunk = 0; chunk < evaluation->num_chunks(); ++chunk) evaluation->RunChunk(chunk);
      sum.resize(evaluation->slots().size(), 0);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += evaluation->slots()[i];
    }
    evaluation->slots() = sum;
    return {evaluation->Metrics(), evaluation->Table()};
  }

  Config config_;
  TaskSet set_ = MakeTaskSet("darkroom");
  Histories histories_{81, 1, 170};
  Windows windows_{histories_, set_.test, set_.tasks, OptionsOf(config_)};
  ModelDeclaration declaration_;
  Transformer model_{Scope(declaration_), OptionsOf(config_)};
  std::unique_ptr<Communicator> alone_ = MakeSingleCommunicator();
  std::unique_ptr<Engine> engine_ = MakeEngine(declaration_, {}, 3, Host(), *alone_);
};

class CompressedInContextTest : public InContextTest {
 protected:
  CompressedInContextTest() : InContextTest("compressed") {}
};

TEST_F(InContextTest, EveryWorldSizeGivesTheSameBits) {
  // 80 seats at five tables: three ranks have two, two and one of them, six ranks one or none.
  const auto alone = Evaluate(1);
  for (int world : {2, 3, 6}) EXPECT_EQ(Evaluate(world), alone) << world;
}

TEST_F(CompressedInContextTest, EveryWorldSizeGivesTheSameBits) { EXPECT_EQ(Evaluate(3), Evaluate(1)); }

TEST_F(InContextTest, TheTableSaysWhatItShows) {
  const std::string table = Evaluate(1).second;
  EXPECT_NE(table.find("return, last 3"), std::string::npos) << table;
  EXPECT_NE(table.find("95 % interval over 10 independent plays of each goal"), std::string::npos) << table;
  dynamic_cast<Options&>(*config_.task.options).eval_plays = 1;
  const auto [metrics, single] = Evaluate(1);
  EXPECT_NE(single.find("+-     ?"), std::string::npos) << "the spread of one play is unknown, not zero\n" << single;
  EXPECT_EQ(metrics.count("test/return_last10_stderr"), 0u);
}

TEST_F(InContextTest, PlaysAreIndependentAndRepeatable) {
  const int goal = 40;  // the start itself, so that returns differ
  const std::vector<SeatId> seats = {{goal, 0}, {goal, 1}, {goal, 2}, {goal, 3}};
  auto play = [&](uint64_t seed) {
    Player player(model_, *engine_, set_.tasks, seats, {.max_transitions = 23, .seed = seed});
    std::vector<double> all;
    for (int episode = 0; episode < 4; ++episode) {
      for (double value : player.PlayEpisode()) all.push_back(value);
    }
    return all;
  };
  const std::vector<double> first = play(1);
  EXPECT_EQ(play(1), first);
  EXPECT_NE(play(2), first);
  for (size_t a = 0; a < seats.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      bool same = true;
      for (size_t e = 0; e < 4; ++e) same = same && first[e * 4 + a] == first[e * 4 + b];
      EXPECT_FALSE(same) << "plays " << a << " and " << b << " drew the same actions";
    }
  }
}

TEST_F(InContextTest, AModelOfNoNumbersHasNoReturn) {
  for (const StateSlice& slice : engine_->Slices()) {
    if (slice.key == "model.pred_action.bias") Floats(slice.values)[0] = std::numeric_limits<float>::quiet_NaN();
  }
  engine_->Publish();
  const std::vector<SeatId> seats = {{40, 0}, {4, 0}};
  Player player(model_, *engine_, set_.tasks, seats, {.max_transitions = 23, .seed = 1});
  for (const double value : player.PlayEpisode()) EXPECT_TRUE(std::isnan(value)) << value;
}

// An engine's weights, and how many rows each forward had: the context's, and one query.
class CountedRows : public ForwardingWeights {
 public:
  using ForwardingWeights::ForwardingWeights;
  at::Tensor RunUnit(UnitId unit, const UnitFunction& fn, at::TensorList inputs, Keeps keeps) override {
    at::Tensor out = weights_.RunUnit(unit, fn, inputs, keeps);
    if (inputs.empty()) rows.push_back(out.size(1));  // the embedding
    return out;
  }
  std::vector<int64_t> rows;
};

// The rows of one seat's forwards in `episodes`, of a model that always says this token.
std::vector<int64_t> RowsOf(const Transformer& model, Engine& engine, const TaskSet& set, TokenKind says,
                            int episodes) {
  for (const StateSlice& slice : engine.Slices()) {
    if (slice.key == "model.pred_token_type.weight") std::ranges::fill(Floats(slice.values), 0.f);
    if (slice.key != "model.pred_token_type.bias") continue;
    const std::span<float> bias = Floats(slice.values);
    for (size_t kind = 0; kind < bias.size(); ++kind) bias[kind] = kind == static_cast<size_t>(says) ? 1.f : 0.f;
  }
  engine.Publish();
  CountedRows weights(engine);
  const SeatId seat{0, 0};
  Player player(model, weights, set.tasks, std::span(&seat, 1), {.compressed = true, .seed = 1});
  for (int episode = 0; episode < episodes; ++episode) player.PlayEpisode();
  return weights.rows;
}

TEST_F(CompressedInContextTest, ARegionIsClosedAfterEightyStepsWhateverTheModelSays) {
  // 180 steps: <c>, up to 80 transitions, and the query; from the second region on <c>, 80, </c> before that.
  std::vector<int64_t> expected;
  for (int64_t step = 0; step < 180; ++step) {
    const int64_t region = step / 80, steps = step % 80, before = region > 0 ? 82 : 0;
    if (region > 0 && steps == 0) expected.push_back((region > 1 ? 82 : 0) + 1 + 80 + 1);  // it asks once more
    expected.push_back(before + 1 + steps + 1);
  }
  EXPECT_EQ(RowsOf(model_, *engine_, set_, kTransitionToken, 9), expected);
}

TEST_F(CompressedInContextTest, ARegionIsClosedWhereTheModelSaysSoButNeverAnEmptyOne) {
  std::vector<int64_t> expected = {2, 3, 5};  // the first action; one step is there; it is closed
  for (int step = 2; step < 20; ++step) expected.insert(expected.end(), {6, 5});
  EXPECT_EQ(RowsOf(model_, *engine_, set_, kEndToken, 1), expected);
}

// The control's mean return is exact: playing it comes close to it.
TEST_F(InContextTest, TheControlIsAPolicyWithoutMemory) {
  for (const StateSlice& slice : engine_->Slices()) {
    if (slice.key != "model.embed_query_state.weight" && slice.key != "model.pred_action.weight") continue;
    at::Tensor(slice.values).mul_(3);  // far from uniform
  }
  engine_->Publish();
  const Policy policy = PolicyWithoutHistory(model_, *engine_, false);
  for (const auto& actions : policy) EXPECT_NEAR(std::accumulate(actions.begin(), actions.end(), 0.0), 1, 1e-6);
  const DarkRoom& room = set_.tasks[41];
  KeyedRandom random(5, "control");
  constexpr int kEpisodes = 20000;
  double sum = 0, square = 0;
  for (int i = 0; i < kEpisodes; ++i) {
    Cell state = room.start;
    double earned = 0;
    for (int t = 0; t < kHorizon; ++t) {
      double u = random.UniformDouble();
      int action = 0;
      for (const auto& p = policy[static_cast<size_t>(state.row * kGridSize + state.column)];
           action < kNumActions - 1 && (u -= p[static_cast<size_t>(action)]) >= 0;)
        ++action;
      state = room.Step(state, action);
      earned += room.Reward(state);
    }
    sum += earned;
    square += earned * earned;
  }
  const double mean = sum / kEpisodes, error = std::sqrt((square / kEpisodes - mean * mean) / kEpisodes);
  EXPECT_NEAR(mean, ExpectedReturn(room, policy), 5 * error);
}

}  // namespace
}  // namespace trainyard::ad
