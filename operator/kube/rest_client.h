// kube::Client over HTTPS.
//
//   - Requests share at most 16 connections and wait for one, each at most as long as the requests before it
//     take; a watch has one of its own.
//   - 429 is retried with Retry-After up to ten times, for every verb: the server has done nothing. A
//     GET is repeated once when its connection breaks. Everything else is the caller's to repeat.
//   - Half-open connections end by TCP keepalive and TCP_USER_TIMEOUT, and a watch by a read deadline
//     above its timeoutSeconds.
//   - The token file is read again every minute and after a 401.
#ifndef TRAINYARD_OPERATOR_KUBE_REST_CLIENT_H_
#define TRAINYARD_OPERATOR_KUBE_REST_CLIENT_H_

#include <memory>
#include <set>
#include <vector>

#include "operator/base/clock.h"
#include "operator/base/mutex.h"
#include "operator/kube/client.h"
#include "operator/kube/kubeconfig.h"

namespace httplib {
class SSLClient;
}

namespace trainyard::kube {

class RestClient : public Client {
 public:
  RestClient(Endpoint endpoint, const Clock& clock);
  ~RestClient() override;

  Result<Json> Get(const Resource& resource, const std::string& ns, const std::string& name) override;
  Result<Json> List(const Resource& resource, const std::string& ns, const ListOptions& options) override;
  Result<Json> Create(const Resource& resource, const std::string& ns, const Json& object,
                      const WriteOptions& options) override;
  Result<Json> MergePatch(const Resource& resource, const std::string& ns, const std::string& name,
                          const std::string& subresource, const Json& patch, const WriteOptions& options) override;
  Status Delete(const Resource& resource, const std::string& ns, const std::string& name,
                const DeleteOptions& options) override;
  Status Watch(const Resource& resource, const std::string& ns, const WatchOptions& options,
               const std::function<bool(WatchEvent)>& on_event, const StopFlag& stop) override;
  void Interrupt() override;

 private:
  struct Request;
  Result<Json> Send(const Request& request);
  std::unique_ptr<httplib::SSLClient> Connect() const;
  class Borrowed;
  std::string Token(bool refused);

  const Endpoint endpoint_;
  const Clock& clock_;
  Mutex mutex_;
  CondVar returned_;
  int borrowed_ GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<httplib::SSLClient>> idle_ GUARDED_BY(mutex_);
  std::set<httplib::SSLClient*> watching_ GUARDED_BY(mutex_);
  bool interrupted_ GUARDED_BY(mutex_) = false;
  std::string token_ GUARDED_BY(mutex_);
  Time token_read_ GUARDED_BY(mutex_){};
};

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_REST_CLIENT_H_
