// Whom the API server could not answer about a template, so that one namespace's webhook that hangs does not hold the
// workers that look after everyone's jobs.
#ifndef TRAINYARD_OPERATOR_RECONCILE_UNANSWERED_H_
#define TRAINYARD_OPERATOR_RECONCILE_UNANSWERED_H_

#include <map>
#include <string>

#include "operator/base/clock.h"
#include "operator/base/mutex.h"

namespace trainyard::reconcile {

// Of each namespace without an answer, when it may be asked for again: after 10 s, and twice as long each time, at most
// 300 s. Thread-safe.
class Unanswered {
 public:
  explicit Unanswered(const Clock& clock) : clock_(clock) {}
  // Why there was no answer, while it may not be asked; else empty: the caller asks, and then says how it went. Where
  // the last one had no answer no other asks meanwhile.
  std::string MayNotAsk(const std::string& ns);
  void Answered(const std::string& ns);
  void NotAnswered(const std::string& ns, const std::string& why);

 private:
  struct Silence {
    std::string why;
    double delay = 0;    // seconds
    bool asked = false;  // since the delay was over, by the one who may
    Instant since{};
  };

  const Clock& clock_;
  Mutex mutex_;
  std::map<std::string, Silence> silences_ GUARDED_BY(mutex_);  // by namespace
};

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_UNANSWERED_H_
