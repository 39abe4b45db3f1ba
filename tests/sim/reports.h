// What rank 0 answers on /status: the newest, one of before, or nothing.
#ifndef TRAINYARD_TESTS_SIM_REPORTS_H_
#define TRAINYARD_TESTS_SIM_REPORTS_H_

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "operator/reconcile/reconciler.h"
#include "tests/sim/training.h"

namespace trainyard::sim {

class Reports : public reconcile::ReportSource {
 public:
  Reports(const Training& training, const Clock& clock, Dice& dice) : training_(training), clock_(clock), dice_(dice) {}

  std::optional<reconcile::Report> Get(const std::string& job_uid) const override;
  // The poller asks job `uid`'s rank 0. Nothing when nobody answers.
  std::optional<reconcile::Report> Poll(const std::string& job_uid);
  // For how long this attempt's rank 0 has answered and said the same, as of its last answer since `since`; time in
  // which nobody heard of it does not count. 0: it has not.
  double Stood(const std::string& job_uid, int64_t attempt, Time since) const;
  // Whether it ever answered that it was at this step.
  bool Said(const std::string& job_uid, int64_t attempt, int64_t step) const {
    return said_.contains({job_uid, attempt, step});
  }

 private:
  const Training& training_;
  const Clock& clock_;
  Dice& dice_;
  std::map<std::string, reconcile::Report> newest_, before_;  // by job uid
  std::set<std::tuple<std::string, int64_t, int64_t>> said_;  // job uid, attempt, step
  struct Answer {
    Time time{}, last_progress{};
    double stood = 0;
  };
  std::map<std::pair<std::string, int64_t>, std::vector<Answer>> answers_;  // by job uid and attempt
  std::map<std::string, Time> unreachable_until_;                           // by job uid
};

}  // namespace trainyard::sim

#endif  // TRAINYARD_TESTS_SIM_REPORTS_H_
