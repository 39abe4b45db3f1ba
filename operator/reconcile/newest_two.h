// Who did something last, and who of all others did.
#ifndef TRAINYARD_OPERATOR_RECONCILE_NEWEST_TWO_H_
#define TRAINYARD_OPERATOR_RECONCILE_NEWEST_TWO_H_

#include <optional>
#include <string>
#include <utility>

#include "operator/base/clock.h"

namespace trainyard::reconcile {

// For one thread at a time.
class NewestTwo {
 public:
  // `who` did it at `at`, which is no earlier than what was noted before.
  void Note(const std::string& who, Instant at) {
    if (!newest_ || newest_->first != who) before_ = std::exchange(newest_, Doer({who, at}));
    newest_->second = at;
  }
  // When somebody else than `who` did it last; nothing: nobody has.
  std::optional<Instant> OfOthers(const std::string& who) const {
    const auto& other = newest_ && newest_->first == who ? before_ : newest_;
    return other ? std::optional(other->second) : std::nullopt;
  }

 private:
  using Doer = std::optional<std::pair<std::string, Instant>>;
  Doer newest_, before_;  // of two
};

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_NEWEST_TWO_H_
