// Our last write of each job's status: a decision on an older copy of the job would repeat what was decided.
#ifndef TRAINYARD_OPERATOR_RECONCILE_OWN_WRITES_H_
#define TRAINYARD_OPERATOR_RECONCILE_OWN_WRITES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "operator/base/clock.h"
#include "operator/base/mutex.h"

namespace trainyard::reconcile {

// `rewinds`: how often the server's versions went back (Caches::job_rewinds); what was written before means nothing
// then. Thread-safe.
class OwnWrites {
 public:
  explicit OwnWrites(const Clock& clock) : clock_(clock) {}

  // `version`: the answer's; `rewinds`: before it was asked for.
  void Note(const std::string& key, const std::string& version, int64_t rewinds);
  // Whether a cache that has the job in this version has yet to see the write.
  bool IsAhead(const std::string& key, const std::string& version, int64_t rewinds) const;
  // Seconds since it; nothing: there is none.
  std::optional<double> Since(const std::string& key) const;
  void Forget(const std::string& key);

 private:
  struct Written {
    uint64_t version = 0;
    int64_t rewinds = 0;
    Instant at{};
  };

  const Clock& clock_;
  mutable Mutex mutex_;
  std::map<std::string, Written> written_ GUARDED_BY(mutex_);  // by key
};

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_OWN_WRITES_H_
