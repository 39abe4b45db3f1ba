#include "trainer/task/algorithm_distillation/in_context.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "trainer/comm/communicator.h"
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
  std::unique_ptr<Engine> engine_ = MakeEngine(declaration_, {}, 3, *alone_);
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

// The control's mean return is exact: playing it comes close to it.
TEST_F(InContextTest, TheControlIsAPolicyWithoutMemory) {
  for (const StateSlice& slice : engine_->Slices()) {
    if (slice.key != "model.embed_query_state.weight" && slice.key != "model.pred_action.weight") continue;
    for (float& value : slice.values) value *= 3;  // far from uniform
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
