// The survival mathematics without oracles: closed forms, and what must hold for any set (tests/parity/test_survival.py
// has scikit-survival and lifelines).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "trainer/base/error.h"
#include "trainer/base/random.h"
#include "trainer/task/mace_survival/event_order.h"
#include "trainer/task/mace_survival/survival_metrics.h"

namespace trainyard::mace {
namespace {

const std::vector<Outcome> kTied = {{1, true}, {2, true}, {2, true}, {2, false}, {3, true}, {4, false}};
const std::vector<double> kRisk = {0.5, -1, 2, 0, 1, -0.5};

TEST(Cox, TiedEventsShareTheirRiskSet) {
  double at1 = 0, at2 = 0, at3 = 0;
  for (size_t i = 0; i < kRisk.size(); ++i) {
    at1 += std::exp(kRisk[i]);
    if (i >= 1) at2 += std::exp(kRisk[i]);
    if (i >= 4) at3 += std::exp(kRisk[i]);
  }
  const double expected = std::log(at1) + 2 * std::log(at2) + std::log(at3) - (0.5 - 1 + 2 + 1);
  const CoxLoss loss = CoxPartialLikelihood(kRisk, kTied);
  EXPECT_NEAR(loss.sum, expected, 1e-12);
  // Of who was censored at the second time: in the sets of the first three events.
  EXPECT_NEAR(loss.gradient[3], 1 / at1 + 2 / at2, 1e-12);
  // Who leaves first is in the first set alone.
  EXPECT_NEAR(loss.gradient[0], std::exp(0.5) / at1 - 1, 1e-12);
  EXPECT_NEAR(std::accumulate(loss.gradient.begin(), loss.gradient.end(), 0.0), 0, 1e-12);
}

TEST(Cox, TheGradientIsThatOfTheSum) {
  constexpr double kStep = 1e-6;
  const CoxLoss loss = CoxPartialLikelihood(kRisk, kTied);
  for (size_t i = 0; i < kRisk.size(); ++i) {
    std::vector<double> up = kRisk, down = kRisk;
    up[i] += kStep;
    down[i] -= kStep;
    // Central differences: an error of kStep^2, and rounding of about 1e-16 / kStep.
    EXPECT_NEAR(loss.gradient[i],
                (CoxPartialLikelihood(up, kTied).sum - CoxPartialLikelihood(down, kTied).sum) / (2 * kStep), 1e-8);
  }
}

TEST(Cox, PartsAddUpToTheWhole) {
  const std::vector<uint8_t> one = {1, 0, 1, 0, 0, 1}, other = {0, 1, 0, 1, 1, 0};
  const CoxLoss whole = CoxPartialLikelihood(kRisk, kTied), a = CoxPartialLikelihood(kRisk, kTied, one),
                b = CoxPartialLikelihood(kRisk, kTied, other);
  EXPECT_NEAR(a.sum + b.sum, whole.sum, 1e-12);
  for (size_t i = 0; i < kRisk.size(); ++i) EXPECT_NEAR(a.gradient[i] + b.gradient[i], whole.gradient[i], 1e-12);
}

TEST(Cox, WithoutEventsItIsZeroAndHasNoGradient) {
  std::vector<Outcome> censored = kTied;
  for (Outcome& outcome : censored) outcome.event = false;
  for (const auto& outcomes : {censored, std::vector<Outcome>{}}) {
    const std::vector<double> risk(kRisk.begin(), kRisk.begin() + std::ssize(outcomes));
    const CoxLoss loss = CoxPartialLikelihood(risk, outcomes);
    EXPECT_EQ(loss.sum, 0);
    for (const double g : loss.gradient) EXPECT_EQ(g, 0);
  }
}

TEST(Cox, LargeRisksDoNotOverflow) {
  std::vector<double> risk = kRisk;
  for (double& r : risk) r += 5000;
  const CoxLoss loss = CoxPartialLikelihood(risk, kTied);
  EXPECT_NEAR(loss.sum, CoxPartialLikelihood(kRisk, kTied).sum, 1e-8) << "a shift of all risks changes nothing";
  const CoxLoss apart =
      CoxPartialLikelihood(std::vector<double>{-800, 900}, std::vector<Outcome>{{1, true}, {2, true}});
  EXPECT_DOUBLE_EQ(apart.sum, 1700);
  EXPECT_DOUBLE_EQ(apart.gradient[0], -1);
  EXPECT_NEAR(apart.gradient[1], 1, 1e-12);
}

TEST(Cox, BaselineOfEqualRisksIsNelsonAndAalens) {
  const StepFunction hazard = BreslowBaseline(std::vector<double>(6, 0.0), kTied);
  EXPECT_EQ(hazard.At(0.5), 0);
  EXPECT_NEAR(hazard.At(1), 1.0 / 6, 1e-12);
  EXPECT_NEAR(hazard.At(2.5), 1.0 / 6 + 2.0 / 5, 1e-12);
  EXPECT_NEAR(hazard.At(99), 1.0 / 6 + 2.0 / 5 + 1.0 / 2, 1e-12);
}

TEST(Concordance, CountsWhatIsKnown) {
  // At time 2 the two events are no pair; each of them and the one censored then are.
  const Concordance pairs = CountPairs(kRisk, kTied);
  EXPECT_EQ(pairs.comparable, 5 + 3 + 3 + 1);
  const std::vector<double> same(6, 0.25);
  EXPECT_EQ(*CountPairs(same, kTied).index(), 0.5);
  EXPECT_FALSE(CountPairs(std::vector<double>{1, 2}, std::vector<Outcome>{{5, true}, {5, true}}).index());
  EXPECT_EQ(*CountPairs(std::vector<double>{1, 2}, std::vector<Outcome>{{5, false}, {5, true}}).index(), 1);
}

TEST(Concordance, IsThatOfEveryPair) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    KeyedRandom random(seed, "pairs");
    std::vector<double> risk;
    std::vector<Outcome> outcomes;
    for (int i = 0; i < 30; ++i) {
      risk.push_back(static_cast<double>(random.Below(8)));
      outcomes.push_back({static_cast<double>(random.Below(10)), random.Below(2) == 1});
    }
    Concordance expected;
    for (size_t i = 0; i < risk.size(); ++i) {
      for (size_t j = 0; j < risk.size(); ++j) {
        const bool known = outcomes[i].event && (outcomes[j].time > outcomes[i].time ||
                                                 (outcomes[j].time == outcomes[i].time && !outcomes[j].event));
        if (!known) continue;
        ++expected.comparable;
        expected.concordant += risk[i] > risk[j] ? 1 : 0;
        expected.tied += risk[i] == risk[j] ? 1 : 0;
      }
    }
    const Concordance found = CountPairs(risk, outcomes);
    EXPECT_EQ(found.comparable, expected.comparable) << "seed " << seed;
    EXPECT_EQ(found.concordant, expected.concordant) << "seed " << seed;
    EXPECT_EQ(found.tied, expected.tied) << "seed " << seed;
  }
}

TEST(SurvivalMetrics, WhatCannotBeEstimatedIsAbsent) {
  const StepFunction censoring = CensoringDistribution(kTied);
  EXPECT_FALSE(TimeDependentAuc(kRisk, kTied, censoring, 0.5)) << "no case";
  EXPECT_FALSE(TimeDependentAuc(kRisk, kTied, censoring, 4)) << "no control";
  EXPECT_TRUE(TimeDependentAuc(kRisk, kTied, censoring, 2));
  EXPECT_FALSE(BrierScore({}, {}, censoring, 1));
}

TEST(EventOrder, EveryStretchHasItsEvents) {
  std::vector<uint8_t> events(97, 0);
  for (size_t i = 0; i < events.size(); i += 8) events[i] = 1;  // 13 of 97
  for (const double fraction : {0.1, 0.25, 0.5, 0.8}) {
    const EventOrder order(events, fraction, 2, {97, 0}, 7);
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      std::set<int64_t> seen;
      for (int64_t p = 0; p < order.items(); ++p) seen.insert(order.ItemAt(epoch, p));
      EXPECT_EQ(seen.size(), events.size()) << "a plain epoch holds everyone once";
    }
    std::vector<int> stream;
    std::vector<int> times(events.size(), 0);
    for (int64_t epoch = 2; epoch < 12; ++epoch) {
      for (int64_t p = 0; p < order.items(); ++p) {
        const auto id = static_cast<size_t>(order.ItemAt(epoch, p));
        stream.push_back(events[id]);
        ++times[id];
      }
    }
    for (const int n : {10, 24, 33}) {
      for (size_t begin = 0; begin + static_cast<size_t>(n) <= stream.size(); begin += 5) {
        const int found = std::accumulate(stream.begin() + static_cast<std::ptrdiff_t>(begin),
                                          stream.begin() + static_cast<std::ptrdiff_t>(begin) + n, 0);
        EXPECT_GE(found, static_cast<int>(std::floor(n * fraction)));
        EXPECT_LE(found, static_cast<int>(std::ceil(n * fraction)));
      }
    }
    for (const uint8_t kind : {0, 1}) {
      std::vector<int> of;
      for (size_t i = 0; i < events.size(); ++i) {
        if (events[i] == kind) of.push_back(times[i]);
      }
      EXPECT_LE(std::ranges::max(of) - std::ranges::min(of), 1) << "everyone of a kind equally often";
    }
  }
}

TEST(EventOrder, AWindowHasDrawsOfItsOwn) {
  std::vector<uint8_t> events(60, 0);
  for (size_t i = 0; i < events.size(); i += 4) events[i] = 1;
  const Window window{40, 12};
  const EventOrder order(events, 0.5, 1, window, 7);
  const WindowOrder windows(60, window, 7);
  EXPECT_EQ(order.items(), 40);
  EXPECT_EQ(order.replaced(), 12);
  for (int64_t epoch = 0; epoch < 9; ++epoch) {
    std::map<int64_t, int> times;
    for (int64_t i = 0; i < 40; ++i) times[windows.ItemOf(epoch, i)] = 0;
    for (int64_t p = 0; p < 40; ++p) {
      const int64_t id = order.ItemAt(epoch, p);
      ASSERT_TRUE(times.contains(id)) << "of the window";
      ++times[id];
      if (epoch > 0) {
        EXPECT_EQ(events[static_cast<size_t>(id)], p % 2) << "every second one";
      }
    }
    for (const uint8_t kind : {0, 1}) {
      std::vector<int> of;
      for (const auto& [id, n] : times) {
        if (events[static_cast<size_t>(id)] == kind) of.push_back(n);
      }
      EXPECT_LE(std::ranges::max(of) - std::ranges::min(of), epoch > 0 ? 1 : 0);
    }
  }
}

// Who comes three times in an epoch is turned and flipped in three ways.
TEST(EventOrder, EachReadingOfARepeatedSubjectHasDrawsOfItsOwn) {
  std::vector<uint8_t> events(60, 0);
  for (size_t i = 0; i < events.size(); i += 10) events[i] = 1;  // 6 of 60, for 30 of an epoch's places
  constexpr int64_t kPlain = 2;
  const auto order = std::make_shared<EventOrder>(events, 0.5, kPlain, Window{60, 0}, 7);
  const SampleStream stream(order, 7, EpochEnd::kCarry, 12);
  const SampleStream plain(std::make_shared<PermutedOrder>(60, 7), 7, EpochEnd::kCarry, 12);
  std::set<uint64_t> keys;
  for (int64_t at = 0; at < 6 * 60; ++at) {
    const SampleKey key = stream.At(at);
    keys.insert(key.key);
    EXPECT_EQ(key.key, stream.At(at).key);
    if (at < kPlain * 60) {
      EXPECT_EQ(key.key, plain.At(at).key) << "as without a fraction";
    }
  }
  EXPECT_EQ(keys.size(), 6 * 60u);
  EXPECT_EQ(plain.At(0).key, HashKey(7, NameKey("sample"), HashKey(0, static_cast<uint64_t>(plain.At(0).id))))
      << "the rule of runs that were begun before";
}

TEST(EventOrder, AWindowOfOneKindIsRefused) {
  std::vector<uint8_t> events(60, 0);
  events[7] = 1;
  const auto refusal = [&](const Window& window) -> std::string {
    try {
      const EventOrder order(events, 0.5, 0, window, 7);
      return "";
    } catch (const ConfigError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(refusal({60, 0}), "");
  EXPECT_EQ(refusal({30, 3}),
            "task.event_fraction: 0.5 takes subjects with an event and subjects without, and the 30 of an epoch are "
            "all of one kind; take a higher data.cache.rate (or data.cache.bytes)");
  events[7] = 0;
  EXPECT_NE(refusal({60, 0}), "");
}

}  // namespace
}  // namespace trainyard::mace
