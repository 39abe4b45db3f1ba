#include "operator/kube/retrying_client.h"

#include <algorithm>

namespace trainyard::kube {
namespace {

constexpr int kRepeats = 10;
constexpr double kDefaultWait = 1, kLongestWait = 30;

const Status& StatusOf(const Status& status) { return status; }
Status StatusOf(const Result<Json>& result) { return result.status(); }

}  // namespace

std::optional<double> RetryingClient::WaitAfter(const Status& status, int repeated) {
  const bool asked = status.Is(Code::kUnavailable) && status.retry_after_seconds();
  if (repeated >= kRepeats || !(status.Is(Code::kThrottled) || asked)) return std::nullopt;
  const MutexLock lock(mutex_);
  std::uniform_real_distribution<double> jitter(1, 1.25);
  return std::clamp(status.retry_after_seconds().value_or(kDefaultWait), 0.1, kLongestWait) * jitter(random_);
}

template <class Call>
auto RetryingClient::Repeat(const Call& call) -> decltype(call()) {
  for (int repeated = 0;; ++repeated) {
    auto result = call();
    const std::optional<double> wait = WaitAfter(StatusOf(result), repeated);
    if (!wait) return result;
    if (!stop_.Sleep(*wait)) return Status(Code::kStopped, "the operator stops");
  }
}

Result<Json> RetryingClient::Get(const Resource& resource, const std::string& ns, const std::string& name) {
  return Repeat([&] { return inner_.Get(resource, ns, name); });
}

Result<Json> RetryingClient::List(const Resource& resource, const std::string& ns, const ListOptions& options) {
  return Repeat([&] { return inner_.List(resource, ns, options); });
}

Result<Json> RetryingClient::Create(const Resource& resource, const std::string& ns, const Json& object,
                                    const WriteOptions& options) {
  return Repeat([&] { return inner_.Create(resource, ns, object, options); });
}

Result<Json> RetryingClient::MergePatch(const Resource& resource, const std::string& ns, const std::string& name,
                                        const std::string& subresource, const Json& patch,
                                        const WriteOptions& options) {
  return Repeat([&] { return inner_.MergePatch(resource, ns, name, subresource, patch, options); });
}

Status RetryingClient::Delete(const Resource& resource, const std::string& ns, const std::string& name,
                              const DeleteOptions& options) {
  return Repeat([&] { return inner_.Delete(resource, ns, name, options); });
}

Status RetryingClient::Watch(const Resource& resource, const std::string& ns, const WatchOptions& options,
                             const std::function<bool(WatchEvent)>& on_event, const StopFlag& stop) {
  return inner_.Watch(resource, ns, options, on_event, stop);
}

}  // namespace trainyard::kube
