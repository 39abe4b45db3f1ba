// The synthetic corpus: its entropies are exact, and its bytes depend on the seed alone.
#include "trainer/task/language_model/markov_source.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/task/language_model/corpus.h"
#include "trainer/task/language_model/synth.h"

namespace trainyard::lm {
namespace {

// Entropy of blocks of `length` tokens, every block counted: 3^length of them.
double BlockEntropy(const MarkovSource& source, int v, int length) {
  int64_t blocks = 1;
  for (int i = 0; i < length; ++i) blocks *= v;
  double entropy = 0;
  for (int64_t block = 0; block < blocks; ++block) {
    std::vector<Token> x;
    for (int64_t rest = block; std::ssize(x) < length; rest /= v) x.push_back(static_cast<Token>(rest % v));
    double p = length == 1 ? source.Stationary(x[0]) : source.Stationary(x[0], x[1]);
    for (size_t i = 2; i < x.size(); ++i) p *= source.Probability(x[i - 2], x[i - 1], x[i]);
    entropy -= p * std::log(p);
  }
  return entropy;
}

TEST(MarkovSource, EntropiesAreThoseOfItsBlocks) {
  for (const int classes : {1, 2, 3}) {
    const MarkovSource source({.vocab = 3, .classes = classes, .successors = 2}, 5);
    const Entropies entropies = source.entropies();
    // Sums of at most 3^8 terms, none above 1: rounding stays below 1e-12.
    EXPECT_NEAR(entropies.unigram, BlockEntropy(source, 3, 1), 1e-12);
    EXPECT_NEAR(entropies.given_one, BlockEntropy(source, 3, 2) - BlockEntropy(source, 3, 1), 1e-12);
    for (const int n : {3, 5, 8})
      EXPECT_NEAR(entropies.rate, BlockEntropy(source, 3, n) - BlockEntropy(source, 3, n - 1), 1e-12) << n;
    EXPECT_LT(entropies.given_one, entropies.unigram);
    if (classes > 1)
      EXPECT_LT(entropies.rate, entropies.given_one);
    else
      EXPECT_NEAR(entropies.rate, entropies.given_one, 1e-12);
  }
}

TEST(MarkovSource, TheStationaryDistributionStays) {
  const MarkovSource source({.vocab = 7, .classes = 3, .successors = 3}, 5);
  double all = 0;
  for (Token b = 0; b < 7; ++b) {
    double before = 0, after = 0;
    for (Token a = 0; a < 7; ++a) {
      before += source.Stationary(a, b);
      after += source.Stationary(b, a);
    }
    EXPECT_NEAR(before, source.Stationary(b), 1e-12);
    EXPECT_NEAR(after, source.Stationary(b), 1e-12);
    all += after;
  }
  EXPECT_NEAR(all, 1, 1e-12);
}

TEST(MarkovSource, TheTextIsOfThatSource) {
  const MarkovSource source({.vocab = 16, .classes = 4, .successors = 4}, 11);
  std::vector<Token> text(400000);
  source.Generate(0, text);
  double sum = 0, squares = 0;
  for (size_t i = 2; i < text.size(); ++i) {
    const double surprise = -std::log(source.Probability(text[i - 2], text[i - 1], text[i]));
    sum += surprise;
    squares += surprise * surprise;
  }
  const auto n = static_cast<double>(text.size() - 2);
  const double mean = sum / n, error = std::sqrt((squares / n - mean * mean) / n);
  // Five standard errors; the surprises are nearly independent. A wrong weight or share of noise shows in the second
  // digit.
  EXPECT_NEAR(mean, source.entropies().rate, 5 * error);
  EXPECT_LT(error, 0.003);
}

class SynthTest : public ::testing::Test {
 protected:
  SynthTest() : folder_(fs::path(::testing::TempDir()) / ("corpus-" + std::to_string(getpid()))) {
    fs::remove_all(folder_);
  }
  ~SynthTest() override { fs::remove_all(folder_); }

  fs::path Write(const std::string& name, int64_t seed, int threads) const {
    const std::unique_ptr<Synthesis> synthesis = MakeSynthesis();
    FieldTable table;
    synthesis->Declare(table);
    for (const Field& field : table.fields()) {
      if (field.path == "--size") field.set("tiny");
      if (field.path == "--seed") field.set(seed);
      if (field.path == "--threads") field.set(threads);
    }
    synthesis->Write(folder_ / name);
    return folder_ / name;
  }

  fs::path folder_;
};

TEST_F(SynthTest, BytesDependOnTheSeedAlone) {
  const fs::path one = Write("one", 7, 1), three = Write("three", 7, 3), other = Write("other", 8, 2);
  int files = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(one)) {
    const fs::path name = entry.path().filename();
    EXPECT_EQ(ReadFile(one / name), ReadFile(three / name)) << name;
    EXPECT_NE(ReadFile(one / name), ReadFile(other / name)) << name;
    ++files;
  }
  EXPECT_EQ(files, 5);
  const auto truth = nlohmann::json::parse(ReadFile(one / "truth.json"));
  const Corpus corpus(one, {0, ""}, truth["vocab"].get<int64_t>());
  EXPECT_EQ(corpus.size(), truth["tokens"].get<int64_t>());
  EXPECT_NO_THROW(RequireTruthOf(one, corpus.fingerprint()));
  EXPECT_THROW(RequireTruthOf(one, "0123456789abcdef"), DataError);
  EXPECT_EQ(ReadTruth(one)->entropy_rate,
            MarkovSource({.vocab = 16, .classes = 2, .successors = 4}, 7).entropies().rate);
}

TEST_F(SynthTest, ShardsOfAnotherCorpusAreRefused) {
  const fs::path out = Write("corpus", 7, 1);
  EXPECT_NO_THROW(Write("corpus", 7, 1));
  WriteShard(out / "shard-00004.tokens", 16, std::vector<Token>{1});
  EXPECT_THROW(Write("corpus", 7, 1), ConfigError);
}

}  // namespace
}  // namespace trainyard::lm
