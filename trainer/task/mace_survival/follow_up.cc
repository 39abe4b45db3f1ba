#include "trainer/task/mace_survival/follow_up.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "trainer/data/sample_stream.h"
#include "trainer/task/mace_survival/exact_math.h"

namespace trainyard::mace {
namespace {

constexpr double kFirstDay = 34, kLastDay = 2447;
constexpr double kDeviation = 1.25;

struct Factor {
  double weight;
  double (*value)(const Phantom&);
};
constexpr std::array<Factor, 5> kFactors = {{{0.8, [](const Phantom& p) { return ExactLog(1 + p.agatston); }},
                                             {0.25, [](const Phantom& p) { return p.lesions; }},
                                             {0.25, [](const Phantom& p) { return p.spread; }},
                                             {0.45, [](const Phantom& p) { return p.age; }},
                                             {-0.25, [](const Phantom& p) { return p.female; }}}};

// To mean 0 and this deviation; all alike stay at 0.
void Standardise(std::vector<double>& values, double deviation) {
  const auto n = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const double x : values) sum += x;
  for (double& x : values) {
    x -= sum / n;
    squares += x * x;
  }
  for (double& x : values) x = squares > 0 ? x * deviation / std::sqrt(squares / n) : 0;
}

std::vector<double> LogRisks(const std::vector<Phantom>& subjects) {
  std::vector<double> risk(subjects.size(), 0);
  for (const Factor& factor : kFactors) {
    std::vector<double> values;
    for (const Phantom& subject : subjects) values.push_back(factor.value(subject));
    Standardise(values, factor.weight);
    for (size_t i = 0; i < risk.size(); ++i) risk[i] += values[i];
  }
  Standardise(risk, kDeviation);
  return risk;
}

}  // namespace

FollowUp Follow(const std::vector<Phantom>& subjects, double event_rate, uint64_t seed) {
  FollowUp follow;
  follow.log_risk = LogRisks(subjects);
  std::vector<double> waits, censored;  // to the event at h0 = 1, and to censoring
  for (size_t i = 0; i < subjects.size(); ++i) {
    KeyedRandom random(seed, "mace follow-up", i);
    waits.push_back(ExactExponential(random) * ExactExp(-follow.log_risk[i]));
    censored.push_back(kFirstDay + (kLastDay - kFirstDay) * random.UniformDouble());
  }
  // The rate at which exactly so many have the event first: between two of the rates at which one more has.
  std::vector<double> rates;
  for (size_t i = 0; i < waits.size(); ++i) rates.push_back(waits[i] / censored[i]);
  std::ranges::sort(rates);
  const auto events = std::clamp<size_t>(
      static_cast<size_t>(std::llround(event_rate * static_cast<double>(rates.size()))), 1, rates.size() - 1);
  const double h0 = (rates[events - 1] + rates[events]) / 2;
  const Permutation order(subjects.size(), HashKey(seed, NameKey("mace folds")));
  for (size_t i = 0; i < waits.size(); ++i) {
    const double wait = waits[i] / h0, days = std::min(wait, censored[i]);
    follow.outcomes.push_back({static_cast<double>(static_cast<int64_t>(days) + 1), wait <= censored[i]});
    follow.train.push_back(order(i) * 5 < subjects.size() * 4 ? 1 : 0);
  }
  return follow;
}

}  // namespace trainyard::mace
