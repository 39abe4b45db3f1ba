// Stand-ins for what surrounds a reconciler that a test drives by hand.
#ifndef TRAINYARD_TESTS_OPERATOR_RECONCILER_PARTS_H_
#define TRAINYARD_TESTS_OPERATOR_RECONCILER_PARTS_H_

#include <functional>
#include <optional>
#include <string>

#include "operator/local/api/memory_client.h"
#include "operator/reconcile/reconciler.h"

namespace trainyard::reconcile {

// A watch that delivers what there is, and ends.
class CacheClient : public local::MemoryClient {
 public:
  using MemoryClient::MemoryClient;
  Status Watch(const kube::Resource& resource, const std::string& ns, const kube::WatchOptions& options,
               const std::function<bool(kube::WatchEvent)>& on_event, const kube::StopFlag& stop) override {
    kube::WatchOptions now = options;
    now.timeout_seconds = 0;
    return MemoryClient::Watch(resource, ns, now, on_event, stop);
  }
};

// Rank 0 never answers.
class NoReports : public ReportSource {
 public:
  std::optional<Report> Get(const std::string&) const override { return std::nullopt; }
};

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_TESTS_OPERATOR_RECONCILER_PARTS_H_
