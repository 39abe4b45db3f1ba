// Which of several operators works: the holder of a Lease (coordination.k8s.io/v1).
//
//   - Another's lease has run out when it did not change for its own duration, as seen here and measured with our
//     steady clock; what it says about time is not believed.
//   - Every write carries the version that was read, so that of two who want it one gets it.
//   - Who could not renew for `renew_seconds` leads no more, at once and for good: the process must end.
//   - It does not fence: a request that was sent before may arrive after. Writes of ours are idempotent or carry
//     what they expect.
//   - An operator that was frozen (SIGSTOP, a sleeping machine) knows when it wakes: the clock went on.
#ifndef TRAINYARD_OPERATOR_KUBE_LEADER_ELECTION_H_
#define TRAINYARD_OPERATOR_KUBE_LEADER_ELECTION_H_

#include <optional>
#include <random>
#include <string>

#include "operator/base/clock.h"
#include "operator/base/log.h"
#include "operator/base/mutex.h"
#include "operator/kube/client.h"

namespace trainyard::kube {

class LeaderElection {
 public:
  struct Options {
    std::string ns, name;
    std::string identity;  // of this process and no other, also not of one before it
    // How long the others wait when nothing is heard of us; what we must renew within, shorter, so that we have
    // stopped before they begin; how often it is tried, shorter still.
    double lease_seconds = 15, renew_seconds = 10, retry_seconds = 2;
  };
  // `client` should have a connection of its own and requests shorter than renew_seconds: a busy operator must
  // not lose its lease in a queue. All references must outlive it.
  LeaderElection(Client& client, const Clock& clock, const Logger& log, Options options);

  // Takes or renews the lease, once. Returns the seconds until the next call. By one thread.
  double Step();
  // Lets go, so that another need not wait. After the last Step, and after the last write of ours. `client`: one
  // whose requests are not stopped.
  void Release(Client& client);

  // Thread-safe. Leads: writes are allowed now. Lost: it led, and never will again.
  bool Leads() const;
  bool Lost() const;

 private:
  enum class State { kWaiting, kLeading, kLost };
  struct Seen {
    std::string version, holder;
    double seconds = 0;  // its duration
    int64_t transitions = 0;
    Instant since{};  // when this version was first seen
  };
  Status Acquire(Instant& sent);
  Status Renew();
  Status Write(Client& client, const std::string& holder, bool taken);
  void See(const Json& lease);
  void Tell(const Status& status, bool leads);
  bool InTime() const REQUIRES_LOCK(mutex_);
  void Enter(State state, Instant renewed);

  Client& client_;
  const Clock& clock_;
  const Logger& log_;
  const Options options_;
  std::mt19937_64 random_;
  std::optional<Seen> seen_;
  std::optional<Instant> told_;  // when a failure that stands was last logged
  mutable Mutex mutex_;
  State state_ GUARDED_BY(mutex_) = State::kWaiting;
  Instant renewed_ GUARDED_BY(mutex_){};  // when the last successful renewal was sent
};

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_LEADER_ELECTION_H_
