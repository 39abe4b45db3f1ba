#include "operator/kube/credentials.h"

#include <algorithm>
#include <cctype>

#include "operator/base/file.h"

namespace trainyard::kube {
namespace {

constexpr double kReadSeconds = 60, kPluginPauseSeconds = 10, kEarlySeconds = 60;

// The file's text, or `old` when there is no file, or none that can be read now.
std::string Reread(const std::string& file, const std::string& old) {
  if (file.empty()) return old;
  const Result<std::string> text = ReadRegular(file, kMostOfAFile);
  return text.ok() && !text->empty() ? *text : old;
}

std::string Trimmed(std::string text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  return text;
}

}  // namespace

Credentials::~Credentials() {
  stop_.Set();
  std::thread early;
  {
    const MutexLock lock(mutex_);
    early = std::move(early_);
  }
  if (early.joinable()) early.join();
}

Result<Identity> Credentials::Now(const net::Wait& wait) {
  const MutexLock lock(mutex_);
  if (!now_.tls || stale_ || SecondsBetween(read_, clock_.Steady()) >= kReadSeconds) {
    if (Status status = ReadFiles(); !status.ok()) return status;
  }
  // A clock that is ahead of the plugin's sees nothing but what has expired: it is not asked for each request.
  const double since = SecondsBetween(asked_at_, clock_.Steady());
  const double left = expires_ ? SecondsBetween(clock_.Now(), *expires_) : kEarlySeconds;
  if (endpoint_.exec && (!asked_ || stale_ || (left <= 0 && PluginHasRested()))) {
    if (Status status = AskPlugin(wait); !status.ok()) return status;
  } else if (endpoint_.exec && left < kEarlySeconds && since >= kEarlySeconds && !early_runs_) {
    AskPluginEarly();
  }
  stale_ = false;
  return now_;
}

bool Credentials::Refuse(const Identity& refused) {
  if (endpoint_.token_file.empty() && !endpoint_.exec) return false;
  const MutexLock lock(mutex_);
  // Otherwise someone else was faster, and there is a newer one already.
  if (refused.token == now_.token && refused.tls == now_.tls) stale_ = true;
  return true;
}

Status Credentials::ReadFiles() {
  read_ = clock_.Steady();
  const std::string old = now_.token.empty() && !endpoint_.exec ? endpoint_.token : now_.token;
  now_.token = Trimmed(Reread(endpoint_.token_file, old));
  if (now_.token.empty() && !endpoint_.token_file.empty())
    return Status(Code::kUnauthorized, endpoint_.token_file + ": holds no token, or cannot be read");
  const bool first = !now_.tls;
  const net::TlsIdentity before =
      first ? net::TlsIdentity{endpoint_.ca_pem, endpoint_.certificate_pem, endpoint_.key_pem} : tls_;
  const net::TlsIdentity found{Reread(endpoint_.ca_file, before.authorities),
                               Reread(endpoint_.certificate_file, before.chain),
                               Reread(endpoint_.key_file, before.key)};
  // A certificate and its key may be replaced one after the other: until they fit, the old ones do.
  const Status status = UseTls(found);
  if (status.ok() || !first) return Status::Ok();
  return UseTls(before);
}

bool Credentials::PluginHasRested() const { return SecondsBetween(asked_at_, clock_.Steady()) >= kPluginPauseSeconds; }

Status Credentials::AskPlugin(const net::Wait& wait) {
  const bool rested = PluginHasRested();
  if (!rested && !plugin_failure_.ok()) return plugin_failure_;
  if (!rested && again_) return Status::Ok();
  const Instant end = std::max(wait.deadline, After(SteadyNow(), plugin_seconds_));
  const Result<ExecCredential> given = RunExecPlugin(*endpoint_.exec, {.deadline = end, .stop = wait.stop});
  asked_at_ = clock_.Steady();
  return plugin_failure_ = given.ok() ? Use(*given) : given.status();
}

void Credentials::AskPluginEarly() {
  if (early_.joinable()) early_.join();  // it has run
  asked_at_ = clock_.Steady();
  early_runs_ = true;
  early_ = std::thread([this] {
    const Result<ExecCredential> given = RunExecPlugin(*endpoint_.exec, net::Wait::For(kEarlySeconds, stop_));
    const MutexLock lock(mutex_);
    if (given.ok()) (void)Use(*given);
    early_runs_ = false;
  });
}

Status Credentials::Use(const ExecCredential& given) {
  const Identity before = now_;
  if (!given.certificate_pem.empty()) {
    const Status status = UseTls({tls_.authorities, given.certificate_pem, given.key_pem});
    if (!status.ok()) return status.With("user.exec: status.clientCertificateData, clientKeyData");
  }
  now_.token = given.token;
  again_ = asked_ && before.token == now_.token && before.tls == now_.tls;
  expires_ = given.expires;
  asked_ = true;
  return Status::Ok();
}

Status Credentials::UseTls(const net::TlsIdentity& identity) {
  const bool same =
      identity.authorities == tls_.authorities && identity.chain == tls_.chain && identity.key == tls_.key;
  if (now_.tls && same) return Status::Ok();
  net::TlsPart wrong;
  Result<std::shared_ptr<const net::TlsContext>> made = net::TlsContext::Make(identity, wrong);
  if (!made.ok()) return made.status();
  now_.tls = *made;
  tls_ = identity;
  return Status::Ok();
}

}  // namespace trainyard::kube
