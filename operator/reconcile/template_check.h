// Whether the API server takes the pods of a job's template: a strict dry run of rank 0's says so before any is made.
#ifndef TRAINYARD_OPERATOR_RECONCILE_TEMPLATE_CHECK_H_
#define TRAINYARD_OPERATOR_RECONCILE_TEMPLATE_CHECK_H_

#include <map>
#include <set>
#include <string>

#include "operator/base/clock.h"
#include "operator/base/mutex.h"
#include "operator/kube/client.h"
#include "operator/reconcile/plan.h"
#include "operator/reconcile/unanswered.h"

namespace trainyard::reconcile {

// Thread-safe for different keys at once.
class TemplateCheck {
 public:
  // All references must outlive it. `unanswered`: of creations, which this is one of.
  TemplateCheck(kube::Client& client, const Clock& clock, Unanswered& unanswered)
      : client_(client), clock_(clock), unanswered_(unanswered) {}

  // Fills in template_error, template_unknown and template_checked. Asks once per generation, and again and again while
  // it is refused: the verdict stands until there is another. A server that cannot say, for instance because a webhook
  // fails, keeps back what is new, and nothing that runs. What the same template was checked for before needs no second
  // look: creating its pods would tell if it did.
  void Run(Observed& observed);
  void Forget(const std::string& key);

 private:
  bool IsToBeAsked(const std::string& key);
  void DryRun(Observed& observed);
  bool WasChecked(const std::string& what);
  void NoteChecked(const std::string& what);

  kube::Client& client_;
  const Clock& clock_;
  Unanswered& unanswered_;
  Mutex mutex_;
  std::map<std::string, Instant> refused_ GUARDED_BY(mutex_);  // when it was asked about a refused template, by key
  std::set<std::string> checked_ GUARDED_BY(mutex_);           // that the server has found good, by namespace
};

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_TEMPLATE_CHECK_H_
