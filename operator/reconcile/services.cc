#include "operator/reconcile/services.h"

#include "operator/api/json.h"
#include "operator/api/labels.h"
#include "operator/base/json_access.h"
#include "operator/reconcile/obtain.h"
#include "operator/reconcile/worker_pod.h"

namespace trainyard::reconcile {
namespace {

// What a service's clusterIP says when it is names alone.
constexpr char kNoAddress[] = "None";

// The part of it that says whom it stands for; the rest is the server's.
Json TargetOf(const Json& service) {
  const Json& spec = json::Field(service, "spec");
  Json ports = Json::array();
  for (const Json& port : json::List(spec, "ports"))
    ports.push_back({{"port", json::Field(port, "port")}, {"targetPort", json::Field(port, "targetPort")}});
  return {{"selector", json::Field(spec, "selector")},
          {"ports", ports},
          {"publishNotReadyAddresses", json::Field(spec, "publishNotReadyAddresses")}};
}

// What makes `service` stand for what `wanted` does; only the very one that was read is changed.
Json Redirection(const Json& service, const Json& wanted) {
  const Json& metadata = json::Field(service, "metadata");
  const Json before = {{"selector", json::Field(json::Field(service, "spec"), "selector")}};
  Json spec = api::MergeDiff(before, {{"selector", wanted["spec"]["selector"]}});
  for (const char* key : {"ports", "publishNotReadyAddresses"}) spec[key] = wanted["spec"][key];
  return {{"metadata",
           {{"uid", json::Text(metadata, "uid")}, {"resourceVersion", json::Text(metadata, "resourceVersion")}}},
          {"spec", spec}};
}

}  // namespace

Status Services::Ensure(const TrainingJob& job, int64_t attempt, const ConfirmFunction& confirm, std::string& master,
                        Problem& problem) {
  Seen seen = seen_.Recall(job, attempt);
  Status status = EnsureNames(job, seen, problem);
  const bool by_name = job.spec.rendezvous == api::kByName;
  if (status.ok() && problem.reason.empty() && !by_name) status = EnsureMaster(job, confirm, seen, problem);
  if (status.ok() && problem.reason.empty()) master = by_name ? MasterName(job, attempt) : seen.address;
  seen_.Keep(job.Key(), std::move(seen));
  return StayWith(status, "Service", problem);
}

bool Services::IsFresh(const std::optional<Instant>& seen_at) const {
  return seen_at && SecondsBetween(*seen_at, clock_.Steady()) < kServiceSeconds;
}

Status Services::EnsureNames(const TrainingJob& job, Seen& seen, Problem& problem) {
  if (IsFresh(seen.names_at)) return Status::Ok();
  const Instant asked = clock_.Steady();
  const bool expected = seen.names_at || seen.attempt > 1 || job.status.workers.created > 0;
  Json service;
  Status status = Obtain(client_, kube::kServices, job, HeadlessService(job), expected, service, problem);
  if (status.ok() && problem.reason.empty()) seen.names_at = asked;
  return status;
}

Status Services::ObtainMaster(const TrainingJob& job, const Seen& seen, const Json& wanted, Json& service,
                              Problem& problem) {
  masters_.Forget(job.Key());  // one may be there, whatever the answer
  const bool expected = seen.master_at || seen.attempt > 1 || job.status.workers.created > 0;
  Status status = Obtain(client_, kube::kServices, job, wanted, expected, service, problem);
  if (status.Is(Code::kInvalid) && wanted["spec"].contains("clusterIP"))
    status = Obtain(client_, kube::kServices, job, MasterService(job, seen.attempt, ""), false, service, problem);
  if (status.ok() && problem.reason.empty()) {
    const std::string uid = json::Text(json::Field(service, "metadata"), "uid");
    masters_.Keep(job.Key(), {.uid = job.uid, .attempt = 0, .service_uid = uid, .gone = false});
  }
  return status;
}

Status Services::EnsureMaster(const TrainingJob& job, const ConfirmFunction& confirm, Seen& seen, Problem& problem) {
  if (IsFresh(seen.master_at)) return Status::Ok();
  const Instant asked = clock_.Steady();
  // Pods of this attempt have the address already: one that comes back has it again, if it is still free.
  const bool same = job.status.attempt == seen.attempt;
  const Json wanted = MasterService(job, seen.attempt, same ? job.status.master.address : "");
  Json service;
  Status status = ObtainMaster(job, seen, wanted, service, problem);
  if (!status.ok() || !problem.reason.empty()) return status;
  if (TargetOf(service) != TargetOf(wanted)) {
    if (status = confirm(); !status.ok()) return status;
    Result<Json> patched = client_.MergePatch(kube::kServices, job.ns, api::MasterServiceName(job.name), "",
                                              Redirection(service, wanted), {});
    if (!patched.ok())
      return patched.status().With("point the master's service at attempt " + std::to_string(seen.attempt));
    service = std::move(*patched);
  }
  const std::string address = json::Text(json::Field(service, "spec"), "clusterIP");
  if (address.empty() || address == kNoAddress) {
    problem = {.reason = kNoMasterAddress,
               .message = "service " + api::MasterServiceName(job.name) + " has no address of its own (clusterIP: \"" +
                          address + "\"), where the workers would find worker 0; delete it, and it is made anew"};
    return Status::Ok();
  }
  seen.address = address;
  seen.master_at = asked;
  return Status::Ok();
}

Result<std::string> Services::FindMaster(const TrainingJob& job, const ConfirmFunction& confirm) {
  const Result<Json> found = client_.Get(kube::kServices, job.ns, api::MasterServiceName(job.name));
  if (found.status().Is(Code::kNotFound)) return std::string();
  if (!found.ok()) return found.status();
  if (!OwnedBy(*found, job.uid) || IsGoing(*found)) return std::string();
  if (Status status = confirm(); !status.ok()) return status;
  return json::Text(json::Field(*found, "metadata"), "uid");
}

Status Services::DropMaster(const TrainingJob& job, const ConfirmFunction& confirm) {
  Master master = masters_.Recall(job, 0);
  if (master.gone) return Status::Ok();
  Status status;
  if (master.service_uid.empty()) {
    Result<std::string> found = FindMaster(job, confirm);
    status = found.status();
    if (found.ok()) master.service_uid = *found;
  }
  const std::string name = api::MasterServiceName(job.name);
  if (!master.service_uid.empty()) {
    status = client_.Delete(kube::kServices, job.ns, name, {.uid = master.service_uid});
    // Another uid has the name: the one we meant is gone.
    if (status.Is(Code::kNotFound) || status.Is(Code::kConflict)) status = Status::Ok();
  }
  if (!status.ok() && !status.Is(Code::kForbidden)) return status.With("delete service " + name);
  seen_.Forget(job.Key());
  masters_.Keep(job.Key(), {.uid = job.uid, .attempt = 0, .service_uid = "", .gone = true});
  return Status::Ok();
}

void Services::Forget(const std::string& key) {
  seen_.Forget(key);
  masters_.Forget(key);
}

}  // namespace trainyard::reconcile
