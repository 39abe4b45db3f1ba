#include "operator/reconcile/template_check.h"

#include "operator/reconcile/policies.h"
#include "operator/reconcile/worker_pod.h"

namespace trainyard::reconcile {
namespace {

constexpr size_t kMaxChecked = 4096;  // templates

}  // namespace

void TemplateCheck::Run(Observed& observed) {
  const TrainingJob& job = observed.job;
  const bool is_new = job.status.observed_generation != job.generation;
  if (!observed.spec_errors.empty() || !(is_new || (WasRefused(job) && IsToBeAsked(job.Key())))) return;
  DryRun(observed);
  if (!is_new) observed.template_unknown.clear();
  const MutexLock lock(mutex_);
  if (observed.template_checked) {
    refused_.erase(job.Key());
  } else {
    refused_[job.Key()] = clock_.Steady();
  }
}

bool TemplateCheck::IsToBeAsked(const std::string& key) {
  const MutexLock lock(mutex_);
  const auto found = refused_.find(key);
  return found == refused_.end() || SecondsBetween(found->second, clock_.Steady()) >= kAskRefusedSeconds;
}

void TemplateCheck::DryRun(Observed& observed) {
  const TrainingJob& job = observed.job;
  const std::string what = job.ns + "/" + SpecHash(job);
  observed.template_checked = WasChecked(what);
  if (observed.template_checked) return;
  observed.template_unknown = unanswered_.MayNotAsk(job.ns);
  if (!observed.template_unknown.empty()) return;
  const Instant asked = clock_.Steady();
  const Json pod = WorkerPod(job, job.status.attempt + 1, 0, "");
  const Result<Json> answer = client_.Create(kube::kPods, job.ns, pod, {.dry_run = true, .strict = true});
  const double seconds = SecondsBetween(asked, clock_.Steady());
  if (answer.status().Is(Code::kInvalid)) {
    observed.template_error = OfTemplate(job, pod, answer.status().message());
  } else if (answer.ok()) {
    NoteChecked(what);
  } else if (!answer.status().Is(Code::kAlreadyExists) && !answer.status().Is(Code::kForbidden)) {
    // A name in use or a quota says nothing about the template; creating the pods will tell.
    observed.template_unknown = "the API server could not check the template: " + answer.status().message();
    unanswered_.Note(job.ns, Status(answer.status().code(), observed.template_unknown), seconds);
  }
  if (observed.template_unknown.empty()) unanswered_.Answered(job.ns, seconds);
  observed.template_checked = observed.template_error.empty() && observed.template_unknown.empty();
}

bool TemplateCheck::WasChecked(const std::string& what) {
  const MutexLock lock(mutex_);
  return checked_.contains(what);
}

void TemplateCheck::NoteChecked(const std::string& what) {
  const MutexLock lock(mutex_);
  if (checked_.size() >= kMaxChecked) checked_.clear();
  checked_.insert(what);
}

void TemplateCheck::Forget(const std::string& key) {
  const MutexLock lock(mutex_);
  refused_.erase(key);
}

}  // namespace trainyard::reconcile
