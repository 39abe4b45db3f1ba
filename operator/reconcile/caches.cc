#include "operator/reconcile/caches.h"

#include "operator/api/labels.h"

namespace trainyard::reconcile {

Caches::Caches(kube::Client& client, const Clock& clock, const std::string& ns, uint64_t seed, const Changed& changed,
               const kube::SkippedFunction& skipped, const Listed& listed)
    : jobs_(
          JobFromApi, [](const JobRecord&) { return std::string(); },
          [changed](const std::string& key) { changed(key, 0); }, skipped, listed),
      pods_([this](const nlohmann::json& pod) { return PodFromJson(pod, texts_); },
            [](const PodRecord& pod) { return pod.job_key.str(); },
            [this, changed](const std::string& key) { changed(key, PodsSettleSeconds(pods_.CountIndexed(key))); },
            skipped, listed),
      jobs_reflector_(client, clock, kube::kTrainingJobs, {.ns = ns, .seed = seed}, jobs_),
      // Selected by the server: pods of others cost nothing.
      pods_reflector_(client, clock, kube::kPods,
                      {.ns = ns,
                       .label_selector = std::string(api::kLabelManaged) + "=true",
                       .seed = seed + 1,
                       .fields = FieldsOfPod()},
                      pods_) {}

}  // namespace trainyard::reconcile
