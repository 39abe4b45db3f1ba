// What shows the server who we are, and us that it is the server, as it is now.
//
//   - Files (token, authorities, certificate, key) are read again after 60 s, and the token after a 401. What cannot be
//     read, or cannot be used, leaves the old one in place.
//   - A plugin runs again in the last minute before what it gave expires, while that is still shown, so that nobody
//     waits for it; when it has expired, and after a 401. Not more often than every ten seconds after one that failed,
//     or that gave the same again.
#ifndef TRAINYARD_OPERATOR_KUBE_CREDENTIALS_H_
#define TRAINYARD_OPERATOR_KUBE_CREDENTIALS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "operator/base/clock.h"
#include "operator/base/mutex.h"
#include "operator/base/stop_flag.h"
#include "operator/kube/exec_plugin.h"
#include "operator/kube/kubeconfig.h"
#include "operator/net/tls.h"
#include "operator/net/wait.h"

namespace trainyard::kube {

struct Identity {
  std::string token;  // empty: none
  std::shared_ptr<const net::TlsContext>
      tls;  // another object after a change: connections of the old one are out of date
};

// Thread-safe. While it runs a plugin without anything to show, the others wait for it, also beyond their deadlines.
class Credentials {
 public:
  // `plugin_seconds`: what a plugin has at least, also beyond the deadline of whoever asks: one that asks a cloud, and
  // was killed with each request that may not wait so long, would never give anything.
  Credentials(Endpoint endpoint, const Clock& clock, double plugin_seconds = 0)
      : endpoint_(std::move(endpoint)), clock_(clock), plugin_seconds_(plugin_seconds) {}
  // Ends a plugin that runs.
  ~Credentials();
  Credentials(const Credentials&) = delete;
  Credentials& operator=(const Credentials&) = delete;

  // kInvalid when there never was anything that can be used; what the plugin failed with.
  Result<Identity> Now(const net::Wait& wait);
  // The server refused what `refused` shows: the next Now() reads again. False when there is nothing to read.
  bool Refuse(const Identity& refused);

 private:
  Status ReadFiles() REQUIRES_LOCK(mutex_);
  // Whether it last ran so long ago that it may be asked again for what it failed to give, or gave anew.
  bool PluginHasRested() const REQUIRES_LOCK(mutex_);
  Status AskPlugin(const net::Wait& wait) REQUIRES_LOCK(mutex_);
  // On a thread of its own; what fails then is asked again when it has to be.
  void AskPluginEarly() REQUIRES_LOCK(mutex_);
  Status Use(const ExecCredential& given) REQUIRES_LOCK(mutex_);
  Status UseTls(const net::TlsIdentity& identity) REQUIRES_LOCK(mutex_);

  const Endpoint endpoint_;
  const Clock& clock_;
  const double plugin_seconds_;
  Mutex mutex_;
  Identity now_ GUARDED_BY(mutex_);
  net::TlsIdentity tls_ GUARDED_BY(mutex_);  // what now_.tls was made of
  bool stale_ GUARDED_BY(mutex_) = true;     // read again, whatever the time
  Instant read_ GUARDED_BY(mutex_){};
  std::optional<Time> expires_ GUARDED_BY(mutex_);
  bool asked_ GUARDED_BY(mutex_) = false;  // the plugin has given something
  Instant asked_at_ GUARDED_BY(mutex_){};  // when it last ran
  bool again_ GUARDED_BY(mutex_) = false;  // it gave what it had given before
  Status plugin_failure_ GUARDED_BY(mutex_);
  StopFlag stop_;
  bool early_runs_ GUARDED_BY(mutex_) = false;
  std::thread early_ GUARDED_BY(mutex_);
};

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_CREDENTIALS_H_
