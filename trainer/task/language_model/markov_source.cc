#include "trainer/task/language_model/markov_source.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "trainer/base/random.h"

namespace trainyard::lm {
namespace {

constexpr double kNoiseShare = 1.0 / static_cast<double>(MarkovSource::kNoise);

double Term(double p) { return p > 0 ? -p * std::log(p) : 0; }

}  // namespace

MarkovSource::MarkovSource(const MarkovOptions& options, uint64_t seed)
    : vocab_(static_cast<size_t>(options.vocab)),
      classes_(static_cast<size_t>(options.classes)),
      per_state_(static_cast<size_t>(options.successors)),
      seed_(seed) {
  const size_t states = classes_ * vocab_;
  successors_.reserve(states * per_state_);
  for (size_t state = 0; state < states; ++state) {
    KeyedRandom random(seed, "markov successors", state);
    uint32_t total = 0;
    for (size_t i = 0; i < per_state_; ++i) {
      // The smaller of two: low tokens are frequent, so that the unigram entropy is not simply ln vocab.
      const uint64_t first = random.Below(vocab_), second = random.Below(vocab_);
      const auto weight = static_cast<uint16_t>(1 + random.Below(kMaxWeight));
      successors_.push_back({static_cast<Token>(std::min(first, second)), weight});
      total += weight;
    }
    totals_.push_back(total);
  }
  FindStationary();
}

// The states' distribution a token later.
std::vector<double> MarkovSource::Next(const std::vector<double>& states) const {
  std::vector<double> next(states.size(), 0), noise(classes_, 0);
  for (size_t state = 0; state < states.size(); ++state) {
    const size_t klass = ClassOf(state % vocab_);
    const double unit = (1 - kNoiseShare) * states[state] / totals_[state];
    for (const Successor& s : SuccessorsOf(state)) next[State(klass, s.token)] += unit * s.weight;
    noise[klass] += kNoiseShare * states[state] / static_cast<double>(vocab_);
  }
  for (size_t i = 0; i < next.size(); ++i) next[i] += noise[i / vocab_];
  return next;
}

void MarkovSource::FindStationary() {
  constexpr int kMaxSteps = 10000;
  // Two tokens of noise in a row forget the past, so that the change shrinks geometrically, until rounding is left.
  constexpr double kRounding = 1e-13;
  stationary_.assign(totals_.size(), 1 / static_cast<double>(totals_.size()));
  for (int step = 0; step < kMaxSteps; ++step) {
    std::vector<double> next = Next(stationary_);
    double change = 0;
    for (size_t i = 0; i < next.size(); ++i) change += std::abs(next[i] - stationary_[i]);
    stationary_ = std::move(next);
    if (change < kRounding) return;
  }
  throw std::logic_error("the Markov source's stationary distribution was not found");
}

// Adds `share` times what follows the state, but for the noise.
void MarkovSource::AddMasses(size_t state, double share, Masses& masses) const {
  for (const Successor& s : SuccessorsOf(state))
    masses[s.token] += share * (1 - kNoiseShare) * s.weight / totals_[state];
}

// With the noise.
double MarkovSource::EntropyOf(const Masses& masses) const {
  const double noise = kNoiseShare / static_cast<double>(vocab_);
  double entropy = static_cast<double>(vocab_ - masses.size()) * Term(noise);
  for (const auto& [token, mass] : masses) entropy += Term(mass + noise);
  return entropy;
}

double MarkovSource::Probability(Token a, Token b, Token next) const {
  Masses masses;
  AddMasses(State(ClassOf(a), b), 1, masses);
  return masses[next] + kNoiseShare / static_cast<double>(vocab_);
}

double MarkovSource::Stationary(Token token) const {
  double sum = 0;
  for (size_t klass = 0; klass < classes_; ++klass) sum += stationary_[State(klass, token)];
  return sum;
}

double MarkovSource::Stationary(Token a, Token b) const {
  Masses masses;
  for (size_t klass = 0; klass < classes_; ++klass) AddMasses(State(klass, a), stationary_[State(klass, a)], masses);
  return masses[b] + Stationary(a) * kNoiseShare / static_cast<double>(vocab_);
}

Entropies MarkovSource::entropies() const {
  Entropies sum{};
  for (size_t token = 0; token < vocab_; ++token) {
    const double p = Stationary(static_cast<Token>(token));
    sum.unigram += Term(p);
    Masses any;
    for (size_t klass = 0; klass < classes_; ++klass) {
      const size_t state = State(klass, token);
      Masses masses;
      AddMasses(state, 1, masses);
      sum.rate += stationary_[state] * EntropyOf(masses);
      AddMasses(state, stationary_[state] / p, any);
    }
    sum.given_one += p * EntropyOf(any);
  }
  return sum;
}

void MarkovSource::Generate(uint64_t index, std::span<Token> text) const {
  KeyedRandom random(seed_, "markov text", index);
  size_t state = 0;
  for (double left = random.UniformDouble(); state + 1 < stationary_.size() && left >= stationary_[state]; ++state)
    left -= stationary_[state];
  for (Token& token : text) {
    token = static_cast<Token>(state % vocab_);
    size_t next = 0;
    if (random.Below(kNoise) == 0) {
      next = random.Below(vocab_);
    } else {
      uint64_t rest = random.Below(totals_[state]);
      const Successor* chosen = SuccessorsOf(state).data();
      for (; rest >= chosen->weight; ++chosen) rest -= chosen->weight;
      next = chosen->token;
    }
    state = State(ClassOf(token), next);
  }
}

}  // namespace trainyard::lm
