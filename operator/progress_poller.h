// Asks rank 0 of every running job for its /status (docs/formats.md). Nothing is pushed, and the
// trainer needs no access to the API.
//
// Rank 0 runs a stranger's image: its answer is at most 64 KiB and comes within a second or not at all, and
// all of them are asked at once (net/fetch.h), so that none makes the others wait.
#ifndef TRAINYARD_OPERATOR_PROGRESS_POLLER_H_
#define TRAINYARD_OPERATOR_PROGRESS_POLLER_H_

#include <functional>
#include <map>
#include <string>
#include <thread>

#include "operator/base/stop_flag.h"
#include "operator/reconcile/observe.h"
#include "operator/reconcile/reconciler.h"

namespace trainyard {

// Thread-safe. Asked are pods that the job owns: anyone may write its labels. An answer of another uid or attempt (pod
// addresses are reused) is dropped.
class ProgressPoller : public reconcile::ReportSource {
 public:
  struct Options {
    double interval_seconds = 5;            // between two rounds, a fifth more or less
    double progress_interval_seconds = 10;  // progress alone is written so often at most
  };
  // `changed` hears of the key of a job whose answer is news for its status (reconcile::IsNews). All references must
  // outlive it.
  ProgressPoller(const reconcile::JobStore& jobs, const reconcile::PodStore& pods, const Clock& clock, Options options,
                 std::function<void(const std::string&)> changed);
  ~ProgressPoller() override { Stop(); }

  void Start();
  // Ends a round in the middle; returns within a second.
  void Stop();
  std::optional<reconcile::Report> Get(const std::string& job_uid) const override;

 private:
  void Loop();
  void PollAll();
  void Keep(const std::string& key, const reconcile::Report& report);

  const reconcile::JobStore& jobs_;
  const reconcile::PodStore& pods_;
  const Clock& clock_;
  const Options options_;
  const std::function<void(const std::string&)> changed_;
  mutable Mutex mutex_;
  std::map<std::string, reconcile::Report> reports_ GUARDED_BY(mutex_);  // by job uid
  StopFlag stop_;
  std::thread thread_;
};

// The report in what a trainer answered; nothing when it is no such answer.
std::optional<reconcile::Report> ReportFromStatus(const std::string& body, Time now);

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_PROGRESS_POLLER_H_
