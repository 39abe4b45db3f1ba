// What a sample costs, against closed forms.
#include "trainer/task/work.h"

#include <gtest/gtest.h>

#include "trainer/config/load.h"
#include "trainer/task/algorithm_distillation/transformer.h"
#include "trainer/task/language_model/gpt2.h"
#include "trainer/task/tasks.h"
#include "trainer/train/threads.h"

namespace trainyard {
namespace {

TEST(Work, OfGpt2IsPalmsFormula) {
  const Config config = ParseConfig("{task: {name: language_model}, model: {preset: gpt2_124m}}", "test",
                                    {"data.path=/nowhere", "train.steps=1"}, TaskDeclarations());
  const SampleWork work = lm::WorkOf(lm::OptionsOf(config).shape());
  // 124,439,808 parameters, of which 1024 x 768 are positions.
  const double parameters = 124439808 - 1024 * 768, attention = 12.0 * 12 * 12 * 64 * 1024;
  EXPECT_EQ(work.tokens, 1024);
  EXPECT_EQ(work.flops, 1024 * (6 * parameters + attention));
  EXPECT_EQ(*work.flops / 1024, 855166464) << "a token";
  ModelDeclaration model;
  DeclareModel(config, model);
  EXPECT_EQ(model.num_parameters(), 124439808);
}

// One layer, of which the queries alone leave: 6 multiplied parameters a row, and attention over the context.
TEST(Work, OfADistillationLayerByHand) {
  ad::Options options;
  options.model = {.context = 5, .dim = 8, .layers = 1, .heads = 2, .ffn = 16, .dropout = 0};
  const double keys = 2 * 64 + 16, others = (64 + 8) + (64 + 8) + (128 + 16) + (128 + 8) + 4 * 8;
  const SampleWork work = ad::WorkOf(options, 4, 3);
  EXPECT_EQ(work.tokens, 7);
  EXPECT_EQ(work.flops, 6 * (4 * 11 * 8 + 7 * keys + 3 * (others + 9 * 5)) + 12 * 8 * 4 * 3);
  options.model.layers = 2;
  EXPECT_EQ(*ad::WorkOf(options, 4, 3).flops - *work.flops, 6 * 7 * (keys + others) + 12 * 8 * 4 * 7);
}

TEST(LoaderThreads, AreItsPartOfTheCpusButTwo) {
  const auto count = [](int cpus, int ranks) { return LoaderThreads({}, {.count = cpus, .why = "CPUs"}, ranks).count; };
  EXPECT_EQ(count(1, 1), 1);
  EXPECT_EQ(count(2, 2), 1);
  EXPECT_EQ(count(4, 1), 2);
  EXPECT_EQ(count(64, 1), 3);
  EXPECT_EQ(count(64, 8), 3);
  EXPECT_EQ(count(16, 8), 1);
  EXPECT_EQ(LoaderThreads(7, {.count = 1, .why = "1 CPU"}, 4).count, 7);
  EXPECT_EQ(LoaderThreads({}, {.count = 4, .why = "4 CPUs of the cgroup's quota"}, 1).why,
            "1 to 3 a rank of 4 CPUs of the cgroup's quota less 2, 1 rank on this node");
}

}  // namespace
}  // namespace trainyard
