// Whom the API server could not answer about a kind of request, so that one namespace's webhook that hangs does not
// hold the workers that look after everyone's jobs.
#ifndef TRAINYARD_OPERATOR_RECONCILE_UNANSWERED_H_
#define TRAINYARD_OPERATOR_RECONCILE_UNANSWERED_H_

#include <map>
#include <optional>
#include <string>

#include "operator/base/clock.h"
#include "operator/base/mutex.h"
#include "operator/base/status.h"

namespace trainyard::reconcile {

// Of each namespace without an answer, when it may be asked for again: after 10 s, and twice as long each time, at most
// 300 s. One that answers slowly is asked by one caller at a time, and gently. Thread-safe.
class Unanswered {
 public:
  explicit Unanswered(const Clock& clock) : clock_(clock) {}
  // Why it may not be asked now; else empty: the caller asks, and then says how it went. Where the last one had no
  // answer, or a slow one, no other asks meanwhile (for at most 30 s, in case that it never says).
  std::string MayNotAsk(const std::string& ns);
  // Whether its last answer was slow.
  bool IsSlow(const std::string& ns) const;
  // How it went, and the seconds that it took; nothing: nobody was asked after all. A webhook that hangs or fails is
  // its namespace's, and takes a worker of ours for as long as it does; of a server that is away nobody is to blame.
  void Note(const std::string& ns, const Status& status, std::optional<double> seconds);
  // After so long: 5 s and more are slow.
  void Answered(const std::string& ns, double seconds);
  void NotAnswered(const std::string& ns, const std::string& why);
  // Not after all: another one may.
  void NotAsked(const std::string& ns);

 private:
  struct Silence {
    std::string why;
    double delay = 0;    // seconds; 0: it answers, slowly
    bool asked = false;  // since the delay was over, by the one who may
    Instant since{}, asked_at{};
  };

  const Clock& clock_;
  mutable Mutex mutex_;
  std::map<std::string, Silence> silences_ GUARDED_BY(mutex_);  // by namespace
};

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_UNANSWERED_H_
