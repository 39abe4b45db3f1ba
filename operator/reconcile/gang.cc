#include "operator/reconcile/gang.h"

#include "common/text.h"
#include "operator/api/labels.h"
#include "operator/base/json_access.h"
#include "operator/reconcile/worker_pod.h"

namespace trainyard::reconcile {
namespace {

constexpr size_t kMaxNews = 1024;  // bytes of what others say that are kept

constexpr char kVolcanoGroup[] = "scheduling.k8s.io/group-name";        // annotation
constexpr char kCoschedulingGroup[] = "scheduling.x-k8s.io/pod-group";  // label
constexpr char kVolcanoScheduler[] = "volcano";

Json& ObjectAt(Json& object, const char* key) {
  Json& inner = object[key];
  if (!inner.is_object()) inner = Json::object();
  return inner;
}

// minResources is left out: a LimitRange, a RuntimeClass's overhead or a webhook may change what the pods ask for, and
// a group that asks for less than its pods, or more, is let in or held back by mistake. The pods are there at once.
Json GroupSpec(const TrainingJob& job) {
  const api::Scheduling& scheduling = job.spec.scheduling;
  if (scheduling.gang == api::kNativeGang) {
    // Its priorityClassName is refused without another feature gate; the pods have it.
    return {{"schedulingPolicy", {{"gang", {{"minCount", job.spec.workers}}}}}};
  }
  Json spec = {{"minMember", job.spec.workers}};
  if (scheduling.gang == api::kVolcanoGang) {
    if (!scheduling.queue.empty()) spec["queue"] = scheduling.queue;
    if (!scheduling.priority_class_name.empty()) spec["priorityClassName"] = scheduling.priority_class_name;
  }
  return spec;
}

void JoinGroup(const api::Scheduling& scheduling, const std::string& group, Json& pod) {
  Json &metadata = pod["metadata"], &spec = pod["spec"];
  if (scheduling.gang == api::kNativeGang) {
    spec["schedulingGroup"] = {{"podGroupName", group}};
  } else if (scheduling.gang == api::kVolcanoGang) {
    ObjectAt(metadata, "annotations")[kVolcanoGroup] = group;
    if (json::Text(spec, "schedulerName").empty()) spec["schedulerName"] = kVolcanoScheduler;
  } else if (scheduling.gang == api::kCoschedulingGang) {
    ObjectAt(metadata, "labels")[kCoschedulingGroup] = group;
  }
}

// An attempt is one group: a pod of it is never replaced, the next attempt asks anew.
void JoinQueue(const TrainingJob& job, const std::string& group, Json& pod) {
  const std::string queue = QueueOf(job);
  if (queue.empty()) return;
  Json& metadata = pod["metadata"];
  ObjectAt(metadata, "labels").update({{api::kLabelQueue, queue}, {api::kLabelQueueGroup, group}});
  ObjectAt(metadata, "annotations")
      .update({{api::kAnnotationQueueGroupCount, std::to_string(job.spec.workers)},
               {api::kAnnotationQueueRetriable, "false"}});
}

}  // namespace

const Gang* GangOf(const TrainingJob& job) {
  static const Gang native{kube::kPodGroups,
                           "Kubernetes 1.36 with the feature gates GenericWorkload (API server, controller manager, "
                           "scheduler) and GangScheduling (scheduler), and the API server's "
                           "--runtime-config=scheduling.k8s.io/v1alpha2=true"},
      volcano{kube::kVolcanoPodGroups, "Volcano"},
      coscheduling{kube::kCoschedulingPodGroups, "the PodGroup CRD of scheduler-plugins and its coscheduling plugin"};
  const std::string& gang = job.spec.scheduling.gang;
  return gang == api::kNativeGang         ? &native
         : gang == api::kVolcanoGang      ? &volcano
         : gang == api::kCoschedulingGang ? &coscheduling
                                          : nullptr;
}

Json PodGroup(const TrainingJob& job, int64_t attempt) {
  const Gang& gang = *GangOf(job);
  return {{"apiVersion", gang.groups.ApiVersion()},
          {"kind", gang.groups.kind},
          {"metadata",
           {{"name", api::GroupName(job.name, attempt)},
            {"namespace", job.ns},
            {"labels",
             {{api::kLabelManaged, "true"},
              {api::kLabelJobName, job.name},
              {api::kLabelJobUid, job.uid},
              {api::kLabelAttempt, std::to_string(attempt)}}},
            {"ownerReferences", OwnerReference(job)}}},
          {"spec", GroupSpec(job)}};
}

std::string GroupNews(const Json& group) {
  const Json& status = json::Field(group, "status");
  std::string news = json::Text(status, "phase");
  for (const Json& condition : json::List(status, "conditions")) {
    const std::string type = json::Text(condition, "type"), state = json::Text(condition, "status");
    // kube-scheduler's, and Volcano's.
    if (!(type == "PodGroupScheduled" && state == "False") && !(type == "Unschedulable" && state == "True")) continue;
    const std::string reason = json::Text(condition, "reason"), message = json::Text(condition, "message");
    news += (news.empty() ? "" : ", ") + reason + (reason.empty() || message.empty() ? "" : ": ") + message;
    break;
  }
  return Shorten(news, kMaxNews);
}

std::string QueueOf(const TrainingJob& job) {
  std::string own = json::Text(job.labels, api::kLabelQueue);
  if (!own.empty()) return own;
  return json::Text(json::Field(json::Field(job.spec.pod_template, "metadata"), "labels"), api::kLabelQueue);
}

void JoinGang(const TrainingJob& job, int64_t attempt, Json& pod) {
  const std::string group = api::GroupName(job.name, attempt);
  const api::Scheduling& scheduling = job.spec.scheduling;
  if (!scheduling.priority_class_name.empty()) pod["spec"]["priorityClassName"] = scheduling.priority_class_name;
  JoinGroup(scheduling, group, pod);
  JoinQueue(job, group, pod);
}

}  // namespace trainyard::reconcile
