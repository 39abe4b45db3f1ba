// A seeded Markov source whose entropies are known: what a language model can learn of it, and no more, is a number.
//
// The token after (..., a, b) is uniform over the vocabulary once in kNoise draws, so that every state is reached from
// every other; else it is one of a few successors of (a mod classes, b), each with a small integer weight. So the last
// token says much, and the one before it the rest: a model needs attention to learn it. Everything is drawn from the
// seed in integers: the same bytes on every machine.
#ifndef TRAINYARD_TRAINER_TASK_LANGUAGE_MODEL_MARKOV_SOURCE_H_
#define TRAINYARD_TRAINER_TASK_LANGUAGE_MODEL_MARKOV_SOURCE_H_

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "trainer/task/language_model/token_file.h"

namespace trainyard::lm {

// Nats per token, of the stationary source.
struct Entropies {
  double rate;       // given the two tokens before, or all of them
  double given_one;  // given the token before
  double unigram;    // given nothing
};

struct MarkovOptions {
  int64_t vocab = 0;       // 2 to 65536
  int64_t classes = 1;     // of the token before the last, 1 to vocab
  int64_t successors = 1;  // of a state
};

// Immutable. Memory and time of construction grow with vocab x classes x successors.
class MarkovSource {
 public:
  static constexpr int64_t kNoise = 16;
  static constexpr int64_t kMaxWeight = 16;

  MarkovSource(const MarkovOptions& options, uint64_t seed);

  double Probability(Token a, Token b, Token next) const;
  // Of the token at any place of an infinitely long text.
  double Stationary(Token token) const;
  // Of the pair (a, b) there.
  double Stationary(Token a, Token b) const;
  Entropies entropies() const;

  // A stretch of text, drawn from (seed, index), that begins anywhere in an infinitely long one.
  void Generate(uint64_t index, std::span<Token> text) const;

 private:
  struct Successor {
    Token token;
    uint16_t weight;  // 1 to kMaxWeight
  };
  using Masses = std::map<Token, double>;  // what is not noise, by token

  // A state is (class of the token before, token).
  size_t State(size_t klass, size_t token) const { return klass * vocab_ + token; }
  size_t ClassOf(size_t token) const { return token % classes_; }
  std::span<const Successor> SuccessorsOf(size_t state) const {
    return std::span(successors_).subspan(state * per_state_, per_state_);
  }
  void AddMasses(size_t state, double share, Masses& masses) const;
  double EntropyOf(const Masses& masses) const;
  void FindStationary();
  std::vector<double> Next(const std::vector<double>& states) const;

  size_t vocab_, classes_, per_state_;
  uint64_t seed_;
  std::vector<Successor> successors_;
  std::vector<uint32_t> totals_;    // of a state's weights
  std::vector<double> stationary_;  // of the states
};

}  // namespace trainyard::lm

#endif  // TRAINYARD_TRAINER_TASK_LANGUAGE_MODEL_MARKOV_SOURCE_H_
