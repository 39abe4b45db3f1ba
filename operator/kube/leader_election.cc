#include "operator/kube/leader_election.h"

#include <cassert>
#include <cmath>

#include "operator/base/json_access.h"

namespace trainyard::kube {
namespace {

constexpr double kTellSeconds = 60;

}  // namespace

LeaderElection::LeaderElection(Client& client, const Clock& clock, const Logger& log, Options options)
    : client_(client),
      clock_(clock),
      log_(log),
      options_(std::move(options)),
      random_(std::hash<std::string>()(options_.identity)) {
  assert(options_.lease_seconds > options_.renew_seconds && options_.renew_seconds > options_.retry_seconds);
}

bool LeaderElection::InTime() const { return SecondsBetween(renewed_, clock_.Steady()) < options_.renew_seconds; }

bool LeaderElection::Leads() const {
  const MutexLock lock(mutex_);
  return state_ == State::kLeading && InTime();
}

bool LeaderElection::Lost() const {
  const MutexLock lock(mutex_);
  return state_ == State::kLost || (state_ == State::kLeading && !InTime());
}

double LeaderElection::Step() {
  if (Lost()) {
    Enter(State::kLost, clock_.Steady());
    return options_.retry_seconds;
  }
  const bool leads = Leads();
  Instant sent = clock_.Steady();
  const Status status = leads ? Renew() : Acquire(sent);
  if (status.ok()) {
    // An answer that came too late is none: others may have stopped waiting for us.
    Enter(leads && Lost() ? State::kLost : State::kLeading, sent);
    if (!leads) log_.Info("this operator leads now", {{"lease", options_.ns + "/" + options_.name}});
  }
  Tell(status, leads);
  std::uniform_real_distribution<double> jitter(1, 1.2);
  return options_.retry_seconds * jitter(random_);
}

// A failure once, and again every minute while it stands. That another leads is none.
void LeaderElection::Tell(const Status& status, bool leads) {
  const bool failed = !status.ok() && !status.Is(Code::kConflict) && !status.Is(Code::kStopped);
  const Instant now = clock_.Steady();
  if (!failed) told_.reset();
  if (!failed || (told_ && SecondsBetween(*told_, now) < kTellSeconds)) return;
  told_ = now;
  log_.Warning(leads ? "the lease cannot be renewed" : "the lease cannot be taken",
               {{"lease", options_.ns + "/" + options_.name},
                {"error", status.ToString()},
                {"remedy", status.Is(Code::kForbidden)
                               ? "grant get, create and patch on leases.coordination.k8s.io in this namespace"
                               : ""}});
}

void LeaderElection::Enter(State state, Instant renewed) {
  const MutexLock lock(mutex_);
  if (state_ == State::kLost) return;
  state_ = state;
  if (state == State::kLeading) renewed_ = renewed;
}

// After the answer that told of it, which may have taken long: what is dated too early runs out too early.
void LeaderElection::See(const Json& lease) {
  const std::string version = json::Text(json::Field(lease, "metadata"), "resourceVersion");
  const Json& spec = json::Field(lease, "spec");
  const double seconds = json::Number(spec, "leaseDurationSeconds");
  const Instant since = seen_ && seen_->version == version ? seen_->since : clock_.Steady();
  seen_ = {.version = version,
           .holder = json::Text(spec, "holderIdentity"),
           // Nobody can keep us out for longer than an hour.
           .seconds = seconds > 0 && seconds <= 3600 ? seconds : options_.lease_seconds,
           .transitions = json::Whole(spec, "leaseTransitions"),
           .since = since};
}

// kConflict when another holds it. `sent`: when the write that took it was asked for, after what a plugin took for the
// credentials of the look before.
Status LeaderElection::Acquire(Instant& sent) {
  const Result<Json> lease = client_.Get(kLeases, options_.ns, options_.name);
  const bool gone = lease.status().Is(Code::kNotFound);
  if (!lease.ok() && !gone) return lease.status();
  if (!gone) See(*lease);
  sent = clock_.Steady();
  // Someone may have deleted it, and its holder leads until its next step, at which it makes the lease anew.
  if (seen_ && !seen_->holder.empty() && seen_->holder != options_.identity &&
      SecondsBetween(seen_->since, sent) < seen_->seconds)
    return Status(Code::kConflict, seen_->holder + " leads");
  if (gone) seen_.reset();
  return Write(client_, options_.identity, true);
}

Status LeaderElection::Renew() {
  Status status = Write(client_, options_.identity, false);
  if (status.Is(Code::kNotFound)) {
    // Someone has deleted it. Whoever makes it first leads: another candidate would within moments.
    seen_.reset();
    status = Write(client_, options_.identity, true);
  }
  if (!status.Is(Code::kConflict) && !status.Is(Code::kNotFound)) return status;
  // Someone wrote it: perhaps ourselves, in a request whose answer was lost.
  const Result<Json> lease = client_.Get(kLeases, options_.ns, options_.name);
  if (!lease.ok()) return lease.status();
  See(*lease);
  if (seen_->holder == options_.identity) return Write(client_, options_.identity, false);
  log_.Error("another operator has taken the lease", {{"holder", seen_->holder}});
  Enter(State::kLost, clock_.Steady());
  return Status(Code::kConflict, seen_->holder + " leads");
}

// `taken`: by someone who did not have it. Without a lease that was seen it is made.
Status LeaderElection::Write(Client& client, const std::string& holder, bool taken) {
  const std::string time = FormatMicroTime(clock_.Now());
  Json spec = {{"holderIdentity", holder},
               {"leaseDurationSeconds", holder.empty() ? 1 : static_cast<int64_t>(std::ceil(options_.lease_seconds))},
               {"renewTime", time}};
  if (taken) {
    spec["acquireTime"] = time;
    spec["leaseTransitions"] = seen_ ? seen_->transitions + 1 : 0;
  }
  Result<Json> written =
      seen_ ? client.MergePatch(kLeases, options_.ns, options_.name, "",
                                {{"metadata", {{"resourceVersion", seen_->version}}}, {"spec", spec}}, {})
            : client.Create(kLeases, options_.ns,
                            {{"apiVersion", kLeases.ApiVersion()},
                             {"kind", kLeases.kind},
                             {"metadata", {{"name", options_.name}, {"namespace", options_.ns}}},
                             {"spec", spec}},
                            {});
  if (written.status().Is(Code::kAlreadyExists)) return Status(Code::kConflict, "another operator was faster");
  if (!written.ok()) return written.status();
  See(*written);
  return Status::Ok();
}

void LeaderElection::Release(Client& client) {
  if (!Leads()) return;
  Status status = Write(client, "", false);
  if (status.Is(Code::kConflict)) {  // by a renewal of ours, perhaps, whose answer the stop has cut off
    const Result<Json> lease = client.Get(kLeases, options_.ns, options_.name);
    if (lease.ok()) See(*lease);
    if (lease.ok() && seen_->holder == options_.identity) status = Write(client, "", false);
  }
  Enter(State::kLost, clock_.Steady());
  if (!status.ok())
    log_.Warning("the lease was not released; another operator waits for its end", {{"error", status.ToString()}});
}

}  // namespace trainyard::kube
