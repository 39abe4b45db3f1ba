#include "trainer/task/mace_survival/survival_metrics.h"

#include <algorithm>
#include <numeric>

namespace trainyard::mace {
namespace {

// How many were added with a rank below another (Fenwick 1994).
class Counts {
 public:
  explicit Counts(size_t size) : tree_(size + 1, 0) {}
  void Add(size_t rank) {
    for (size_t i = rank + 1; i < tree_.size(); i += i & (~i + 1)) ++tree_[i];
    ++total_;
  }
  int64_t Below(size_t rank) const {
    int64_t n = 0;
    for (size_t i = rank; i > 0; i -= i & (~i + 1)) n += tree_[i];
    return n;
  }
  int64_t total() const { return total_; }

 private:
  std::vector<int64_t> tree_;
  int64_t total_ = 0;
};

template <class Less>
std::vector<size_t> Sorted(size_t size, Less less) {
  std::vector<size_t> order(size);
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, less);
  return order;
}

// The product of 1 - ended / at_risk over the times at which someone ends so.
StepFunction ProductLimit(std::span<const Outcome> outcomes, bool of_events) {
  const auto order = Sorted(outcomes.size(), [&](size_t a, size_t b) { return outcomes[a].time < outcomes[b].time; });
  StepFunction survival{.before = 1, .times = {}, .values = {}};
  double product = 1;
  for (size_t begin = 0; begin < order.size();) {
    const double time = outcomes[order[begin]].time;
    size_t end = begin, events = 0;
    for (; end < order.size() && outcomes[order[end]].time == time; ++end) events += outcomes[order[end]].event ? 1 : 0;
    const size_t ended = of_events ? events : end - begin - events;
    const size_t at_risk = order.size() - begin - (of_events ? 0 : events);
    if (ended > 0) product *= 1 - static_cast<double>(ended) / static_cast<double>(at_risk);
    survival.times.push_back(time);
    survival.values.push_back(product);
    begin = end;
  }
  return survival;
}

}  // namespace

std::optional<double> Concordance::index() const {
  if (comparable == 0) return {};
  return (static_cast<double>(concordant) + 0.5 * static_cast<double>(tied)) / static_cast<double>(comparable);
}

Concordance CountPairs(std::span<const double> risk, std::span<const Outcome> outcomes, std::span<const uint8_t> mine) {
  std::vector<double> levels(risk.begin(), risk.end());
  std::ranges::sort(levels);
  levels.erase(std::unique(levels.begin(), levels.end()), levels.end());
  const auto rank_of = [&](size_t i) {
    return static_cast<size_t>(std::ranges::lower_bound(levels, risk[i]) - levels.begin());
  };
  // The latest first, and of those at one time who was censored.
  const auto order = Sorted(risk.size(), [&](size_t a, size_t b) {
    return outcomes[a].time != outcomes[b].time ? outcomes[a].time > outcomes[b].time
                                                : outcomes[a].event < outcomes[b].event;
  });
  Counts later(levels.size());
  Concordance pairs;
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    const Outcome& first = outcomes[order[begin]];
    for (; end < order.size() && outcomes[order[end]].time == first.time && outcomes[order[end]].event == first.event;
         ++end) {
      const size_t i = order[end];
      if (!first.event || (!mine.empty() && !mine[i])) continue;
      const int64_t below = later.Below(rank_of(i)), up_to = later.Below(rank_of(i) + 1);
      pairs.comparable += later.total();
      pairs.concordant += below;
      pairs.tied += up_to - below;
    }
    for (size_t k = begin; k < end; ++k) later.Add(rank_of(order[k]));
    begin = end;
  }
  return pairs;
}

StepFunction KaplanMeier(std::span<const Outcome> outcomes) { return ProductLimit(outcomes, true); }
StepFunction CensoringDistribution(std::span<const Outcome> outcomes) { return ProductLimit(outcomes, false); }

std::optional<double> TimeDependentAuc(std::span<const double> risk, std::span<const Outcome> outcomes,
                                       const StepFunction& censoring, double time) {
  const auto order = Sorted(risk.size(), [&](size_t a, size_t b) { return risk[a] < risk[b]; });
  double below = 0, cases = 0, area = 0;  // controls of a lower risk, weights of cases, weighted pairs
  for (size_t begin = 0; begin < order.size();) {
    double controls_here = 0, cases_here = 0;
    size_t end = begin;
    for (; end < order.size() && risk[order[end]] == risk[order[begin]]; ++end) {
      const Outcome& outcome = outcomes[order[end]];
      if (outcome.time > time) {
        controls_here += 1;
      } else if (outcome.event) {
        const double uncensored = censoring.At(outcome.time);
        if (uncensored == 0) return {};
        cases_here += 1 / uncensored;
      }
    }
    area += cases_here * (below + 0.5 * controls_here);
    below += controls_here;
    cases += cases_here;
    begin = end;
  }
  if (cases == 0 || below == 0) return {};
  return area / (cases * below);
}

std::optional<double> BrierScore(std::span<const double> survival, std::span<const Outcome> outcomes,
                                 const StepFunction& censoring, double time) {
  if (outcomes.empty()) return {};
  const auto weight = [&](double at) {
    const double uncensored = censoring.At(at);
    return uncensored > 0 ? 1 / uncensored : 0;
  };
  const double beyond = weight(time);
  double sum = 0;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const double s = survival[i];
    if (outcomes[i].time > time) {
      sum += (1 - s) * (1 - s) * beyond;
    } else if (outcomes[i].event) {
      sum += s * s * weight(outcomes[i].time);
    }
  }
  return sum / static_cast<double>(outcomes.size());
}

double IntegratedScore(std::span<const double> times, std::span<const double> scores) {
  double area = 0;
  for (size_t i = 1; i < times.size(); ++i) area += (times[i] - times[i - 1]) * (scores[i] + scores[i - 1]) / 2;
  return area / (times.back() - times.front());
}

}  // namespace trainyard::mace
