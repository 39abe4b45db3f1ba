#include "trainer/task/mace_survival/fold_scores.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "trainer/base/text.h"
#include "trainer/task/mace_survival/survival_metrics.h"

namespace trainyard::mace {
namespace {

constexpr double kDays = 365.25;
constexpr int kYears = 5;
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

bool AllFinite(const std::vector<double>& values) {
  return std::ranges::all_of(values, [](double x) { return std::isfinite(x); });
}

double LossPerEvent(const std::vector<double>& risk, const std::vector<Outcome>& outcomes) {
  const auto events = std::ranges::count_if(outcomes, &Outcome::event);
  return CoxPartialLikelihood(risk, outcomes).sum / static_cast<double>(events);
}

std::optional<double> OracleOf(const Cohort& cohort, const std::vector<Outcome>& outcomes,
                               const std::map<std::string, double>& truth) {
  std::vector<double> risk;
  for (const Subject& subject : cohort.val()) {
    const auto it = truth.find(subject.name);
    if (it == truth.end()) return {};
    risk.push_back(it->second);
  }
  return CountPairs(risk, outcomes).index();
}

// Years at which some of both folds are still seen: beyond training's follow-up nothing is known of censoring.
std::vector<int> YearsOf(const std::vector<Outcome>& val, const std::vector<Outcome>& trained) {
  const auto last_of = [](const std::vector<Outcome>& fold) { return std::ranges::max(fold, {}, &Outcome::time).time; };
  const double last = std::min(last_of(val), last_of(trained));
  std::vector<int> years;
  for (int year = 1; year <= kYears && year * kDays < last; ++year) years.push_back(year);
  return years;
}

}  // namespace

FoldScores ScoreFolds(const std::vector<double>& val, const TrainingRisks& train, const Cohort& cohort,
                      const std::map<std::string, double>& truth) {
  const std::vector<Outcome> outcomes = OutcomesOf(cohort.val()), trained = OutcomesOf(cohort.train());
  FoldScores scores;
  scores.concordance = scores.loss = kUnknown;
  scores.oracle = OracleOf(cohort, outcomes, truth);
  if (!AllFinite(val) || !AllFinite(train.risks)) return scores;
  scores.concordance = CountPairs(val, outcomes).index().value_or(kUnknown);
  scores.loss = LossPerEvent(val, outcomes);
  const StepFunction censoring = CensoringDistribution(trained);
  const std::vector<int> years = YearsOf(outcomes, trained);
  for (const int year : years) {
    if (const auto auc = TimeDependentAuc(val, outcomes, censoring, year * kDays)) scores.auc[year] = *auc;
  }
  if (train.risks.empty()) return scores;
  scores.train_concordance = CountPairs(train.risks, train.outcomes).index();
  // A risk is known up to a constant, which need not leave anything of exp(risk) or of the hazard that belongs to it.
  const double centre = std::ranges::max(train.risks);
  std::vector<double> centred = train.risks;
  for (double& risk : centred) risk -= centre;
  scores.baseline = BreslowBaseline(centred, train.outcomes);
  std::vector<double> times, briers;
  for (const int year : years) {
    const double hazard = scores.baseline.At(year * kDays);
    std::vector<double> survival;
    for (const double risk : val) survival.push_back(hazard == 0 ? 1 : std::exp(-hazard * std::exp(risk - centre)));
    scores.brier[year] = BrierScore(survival, outcomes, censoring, year * kDays).value_or(kUnknown);
    times.push_back(year);
    briers.push_back(scores.brier[year]);
  }
  for (double& hazard : scores.baseline.values) hazard *= std::exp(-centre);
  if (times.size() > 1) scores.integrated_brier = IntegratedScore(times, briers);
  return scores;
}

std::vector<RiskGroup> ByThirds(const std::vector<double>& risk, const std::vector<Subject>& subjects) {
  if (!AllFinite(risk)) return {};
  std::vector<size_t> order(risk.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return risk[a] < risk[b]; });
  std::vector<RiskGroup> groups;
  const std::array<const char*, 3> names = {"low", "middle", "high"};
  for (size_t g = 0; g < names.size(); ++g) {
    std::vector<Outcome> outcomes;
    for (size_t i = order.size() * g / names.size(); i < order.size() * (g + 1) / names.size(); ++i)
      outcomes.push_back(subjects[order[i]].outcome);
    groups.push_back({names[g], KaplanMeier(outcomes)});
  }
  return groups;
}

Curve AsCurve(const std::string& tag, const StepFunction& function) {
  Curve curve{tag, {0}, {function.before}};
  for (size_t i = 0; i < function.times.size(); ++i) {
    curve.x.push_back(function.times[i] / kDays);
    curve.y.push_back(function.values[i]);
  }
  return curve;
}

Image PlotSurvival(const std::string& tag, const std::vector<RiskGroup>& groups) {
  constexpr int kHeight = 256, kWidth = 384, kMargin = 8;
  constexpr std::array<std::array<uint8_t, 3>, 3> kColours = {{{44, 160, 44}, {255, 127, 14}, {214, 39, 40}}};
  Image image{tag, kHeight, kWidth, 3, std::vector<uint8_t>(size_t{kHeight} * kWidth * 3, 255)};
  double last = kDays;
  for (const RiskGroup& group : groups)
    last = std::max(last, group.survival.times.empty() ? 0 : group.survival.times.back());
  const auto dot = [&](int x, int y, const std::array<uint8_t, 3>& colour) {
    std::ranges::copy(colour, image.pixels.begin() + (y * kWidth + x) * 3);
  };
  const auto row_of = [&](double survival) {
    return kMargin + static_cast<int>(std::lround((1 - survival) * (kHeight - 2 * kMargin - 1)));
  };
  const auto time_of = [&](int x) { return (x - kMargin) * last / (kWidth - 2 * kMargin - 1); };
  for (int x = kMargin; x < kWidth - kMargin; ++x) {
    const bool new_year = static_cast<int>(time_of(x) / kDays) != static_cast<int>(time_of(x - 1) / kDays);
    for (int y = kMargin; y < kHeight - kMargin; ++y) {
      if (new_year || x == kMargin || y == row_of(0)) dot(x, y, {200, 200, 200});
    }
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    int before = row_of(1);
    for (int x = kMargin; x < kWidth - kMargin; ++x) {
      const int row = row_of(groups[g].survival.At(time_of(x)));
      for (int y = std::min(before, row); y <= std::max(before, row); ++y) dot(x, y, kColours[g % kColours.size()]);
      before = row;
    }
  }
  return image;
}

std::string TableOf(const FoldScores& scores, const Cohort& cohort) {
  const auto outcomes = OutcomesOf(cohort.val());
  std::string text = Format("val: %zu subjects, %td events; C-index %.4f", outcomes.size(),
                            std::ranges::count_if(outcomes, &Outcome::event), scores.concordance);
  if (scores.oracle) text += Format(", of the true log-risk %.4f", *scores.oracle);
  if (scores.train_concordance) text += Format("; train %.4f", *scores.train_concordance);
  text += "\n";
  std::set<int> years;
  for (const auto* of : {&scores.auc, &scores.brier}) {
    for (const auto& [year, score] : *of) years.insert(year);
  }
  if (!years.empty()) text += Format("%-6s %8s %8s\n", "years", "tAUC", "Brier");
  const auto known = [](const std::map<int, double>& of, int year) {
    const auto score = of.find(year);
    return score == of.end() || !std::isfinite(score->second) ? std::string("?") : Format("%.4f", score->second);
  };
  for (const int year : years)
    text += Format("%-6d %8s %8s\n", year, known(scores.auc, year).c_str(), known(scores.brier, year).c_str());
  if (scores.integrated_brier)
    text += Format("integrated Brier score %.4f (training's baseline hazard, censoring weighted)\n",
                   *scores.integrated_brier);
  return text;
}

}  // namespace trainyard::mace
