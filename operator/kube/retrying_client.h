// Repeats what a server asked to come again.
//
//   - A 429, for every verb, and a 5xx that carries Retry-After: the server has done nothing. Up to ten times, after
//     what it asked for (1 s when it did not say, at most 30 s), and up to a quarter more.
//   - The wait ends with the stop, and then so does the call (kStopped).
//   - Nothing else is repeated: what a call without an answer has done is for the caller to find out. A watch
//     is its reflector's.
#ifndef TRAINYARD_OPERATOR_KUBE_RETRYING_CLIENT_H_
#define TRAINYARD_OPERATOR_KUBE_RETRYING_CLIENT_H_

#include <atomic>
#include <cstdint>
#include <random>

#include "operator/base/mutex.h"
#include "operator/kube/client.h"

namespace trainyard::kube {

// Thread-safe. All references must outlive it.
class RetryingClient : public Client {
 public:
  RetryingClient(Client& inner, const StopFlag& stop, uint64_t seed) : inner_(inner), stop_(stop), random_(seed) {}

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

 private:
  // The seconds to wait before the call is made again; nothing when its status is the answer.
  std::optional<double> WaitAfter(const Status& status, int repeated);
  template <class Call>
  auto Repeat(const Call& call) -> decltype(call());

  Client& inner_;
  const StopFlag& stop_;
  Mutex mutex_;
  std::mt19937_64 random_ GUARDED_BY(mutex_);
};

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_RETRYING_CLIENT_H_
