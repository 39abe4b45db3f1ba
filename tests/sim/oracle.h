// Judges every end of an attempt and of a job by the rules (verdict.h), at the moment at which its status is written:
// on any state of the attempt's pods between the one that the operator had seen when it began to decide and the one
// that there is now.
#ifndef TRAINYARD_TESTS_SIM_ORACLE_H_
#define TRAINYARD_TESTS_SIM_ORACLE_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/sim/reports.h"
#include "tests/sim/troubled_client.h"
#include "tests/sim/verdict.h"

namespace trainyard::sim {

class Oracle {
 public:
  // `operators`: how many act. `complain` hears of each judgment that breaks a rule. All references must outlive it.
  Oracle(Mirror& mirror, const Reports& reports, const Clock& clock, size_t operators,
         std::function<void(const std::string&)> complain);

  // Whose request is at the server; null: nobody's.
  void Writing(const Basis* basis) { writer_ = basis; }
  // An operator has lost the answer to a pod's creation, or its memory: of pods that go now it may know nothing but
  // what the status says.
  void Forgot() { forgot_at_ = clock_.Now(); }

 private:
  // One change of a pod of an attempt.
  struct Change {
    uint64_t version = 0;
    int64_t worker = 0;
    std::optional<PodView> pod;  // nothing: it is gone
    std::string uid;
    Time time{};
  };
  // What is known of an attempt.
  struct Log {
    std::vector<Change> changes;
    Time not_before{};  // when its first pod may come
  };
  void PodChanged(const PodView* before, const PodView* after);
  void JobChanged(const JobView* before, const JobView* after);
  void JudgeRestart(const JobView& before, const JobView& after);
  void JudgeSuccess(const JobView& before, const JobView& after);
  void JudgeDone(const JobView& before, const JobView& after);
  void JudgeFirstFailure(const JobView& before, const JobView& after);
  void JudgeDeletion(const JobView& job);
  void JudgeForce(const PodView& pod);
  void ExpectWait(const JobView& before, const JobView& after);
  void CountSuspension(const JobView& before, const JobView& after);
  // What is wrong with this restart or failure, if these were the pods; empty: nothing.
  std::string Compare(const JobView& before, const JobView& after, const Attempt& pods, const Workers& lost,
                      Time now) const;
  std::string CompareLimits(const JobView& before, const JobView& after, const Verdict& verdict) const;
  // The same of an attempt whose workers live: a deadline must have passed.
  std::string CompareDeadline(const JobView& before, const JobView& after, const Attempt& pods, Time now) const;
  std::string CompareActive(const JobView& before) const;
  // Workers that have lost their pod if they have none, as an operator may see it: all that have had one, or none,
  // where it depends on what it has made itself and still knows.
  std::vector<Workers> MayBeLost(const JobView& job) const;
  bool EvidenceIsIn(const JobView& before, const Attempt& pods, const Workers& lost, Time now) const;
  // When the last worker of the attempt had a node; nothing: one has none.
  std::optional<Time> AllScheduled(const JobView& job) const;
  // Whether not all pods of its attempt had been made when the spec became another than the attempt began with.
  bool HasAnotherSpec(const JobView& job) const;
  // Whether a pod of `job`'s attempt ever was such a one.
  bool EverHad(const JobView& job, const std::function<bool(const PodView&)>& such) const;
  // Whether its pods found no node for long, because of those that it avoids.
  bool FoundNoNode(const JobView& job) const;
  // The states of the pods of `job`'s attempt that a decision may be based on, the oldest first.
  std::vector<Attempt> States(const JobView& job) const;

  const Mirror& mirror_;
  const Reports& reports_;
  const Clock& clock_;
  const bool several_;
  const std::function<void(const std::string&)> complain_;
  const Basis* writer_ = nullptr;
  Time forgot_at_{};
  std::map<std::pair<std::string, int64_t>, Log> logs_;  // by job uid and attempt
  std::map<std::string, JobView> gone_;                  // jobs as they were last, by uid
  struct Repeats {
    int64_t count = 0;
    Time begun{};  // the attempt
  };
  std::map<std::string, Repeats> repeats_;        // by job uid
  std::map<std::string, double> suspended_;       // seconds, by job uid
  std::map<std::string, std::string> made_from_;  // the spec that the attempt began with, by job uid
};

}  // namespace trainyard::sim

#endif  // TRAINYARD_TESTS_SIM_ORACLE_H_
