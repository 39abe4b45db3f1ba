#include "trainer/task/mace_survival/cox.h"

#include <cmath>
#include <limits>
#include <numeric>

namespace trainyard::mace {
namespace {

// The logarithm of a sum of exponentials that grows.
class LogSum {
 public:
  void Add(double x) {
    if (x > most_) {
      scaled_ = scaled_ * std::exp(most_ - x) + 1;
      most_ = x;
    } else {
      scaled_ += std::exp(x - most_);
    }
  }
  double value() const { return scaled_ > 0 ? most_ + std::log(scaled_) : -std::numeric_limits<double>::infinity(); }

 private:
  double most_ = -std::numeric_limits<double>::infinity(), scaled_ = 0;
};

std::vector<size_t> LatestFirst(std::span<const Outcome> outcomes) {
  std::vector<size_t> order(outcomes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return outcomes[a].time > outcomes[b].time; });
  return order;
}

// Where the run of equal times that begins at `begin` ends.
size_t EndOfTies(const std::vector<size_t>& order, std::span<const Outcome> outcomes, size_t begin) {
  size_t end = begin + 1;
  while (end < order.size() && outcomes[order[end]].time == outcomes[order[begin]].time) ++end;
  return end;
}

// Per subject, the logarithm of its risk set's sum.
std::vector<double> LogRiskSets(std::span<const double> risk, std::span<const Outcome> outcomes,
                                const std::vector<size_t>& order) {
  std::vector<double> logs(risk.size());
  LogSum sum;
  for (size_t begin = 0; begin < order.size();) {
    const size_t end = EndOfTies(order, outcomes, begin);
    for (size_t k = begin; k < end; ++k) sum.Add(risk[order[k]]);
    for (size_t k = begin; k < end; ++k) logs[order[k]] = sum.value();
    begin = end;
  }
  return logs;
}

}  // namespace

CoxLoss CoxPartialLikelihood(std::span<const double> risk, std::span<const Outcome> outcomes,
                             std::span<const uint8_t> mine) {
  const std::vector<size_t> order = LatestFirst(outcomes);
  const std::vector<double> logs = LogRiskSets(risk, outcomes, order);
  CoxLoss loss{0, std::vector<double>(risk.size(), 0)};
  // From the earliest on: an event's risk set holds all who come at its time or later. So a subject's gradient has a
  // term exp(risk - log of the sum) for each event up to its own time.
  LogSum inverse;
  bool any = false;
  for (size_t end = order.size(); end > 0;) {
    size_t begin = end - 1;
    while (begin > 0 && outcomes[order[begin - 1]].time == outcomes[order[end - 1]].time) --begin;
    for (size_t k = begin; k < end; ++k) {
      const size_t i = order[k];
      if (!outcomes[i].event || (!mine.empty() && !mine[i])) continue;
      loss.sum += logs[i] - risk[i];
      loss.gradient[i] -= 1;
      inverse.Add(-logs[i]);
      any = true;
    }
    for (size_t k = begin; any && k < end; ++k) loss.gradient[order[k]] += std::exp(risk[order[k]] + inverse.value());
    end = begin;
  }
  return loss;
}

StepFunction BreslowBaseline(std::span<const double> risk, std::span<const Outcome> outcomes) {
  const std::vector<size_t> order = LatestFirst(outcomes);
  const std::vector<double> logs = LogRiskSets(risk, outcomes, order);
  StepFunction hazard;
  double sum = 0;
  for (auto i = order.rbegin(); i != order.rend(); ++i) {
    if (!outcomes[*i].event) continue;
    sum += std::exp(-logs[*i]);
    if (hazard.times.empty() || hazard.times.back() != outcomes[*i].time) {
      hazard.times.push_back(outcomes[*i].time);
      hazard.values.push_back(0);
    }
    hazard.values.back() = sum;
  }
  return hazard;
}

}  // namespace trainyard::mace
