// A client whose requests take time, fail before or after they did their work, and kill their operator; whose
// watches stop early, and whose lists from the server's cache are old.
#ifndef TRAINYARD_TESTS_SIM_TROUBLED_CLIENT_H_
#define TRAINYARD_TESTS_SIM_TROUBLED_CLIENT_H_

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "operator/local/api/memory_client.h"
#include "tests/sim/mirror.h"
#include "tests/sim/task.h"

namespace trainyard::sim {

// What goes wrong in a world, all of it as chances or in all; `level` 0 turns it off.
struct Trouble {
  double level = 0.5;
  double interleave = 0.3;          // that others go on before a request
  std::optional<int64_t> max_pods;  // a quota
};

// What a decision is based on.
struct Basis {
  uint64_t pods = 0;  // the version up to which the cache of pods had seen the API
  Time began{};
};

class TroubledClient : public local::MemoryClient {
 public:
  // `pause` lets others go on, when it is called by someone who can be paused; it may throw Crash.
  TroubledClient(local::MemoryApi& api, const Mirror& mirror, VirtualClock& clock, Dice& dice, const Trouble& trouble,
                 std::function<void()> pause)
      : local::MemoryClient(api),
        api_(api),
        mirror_(mirror),
        clock_(clock),
        dice_(dice),
        trouble_(trouble),
        pause_(std::move(pause)) {}

  Result<Json> Get(const kube::Resource& resource, const std::string& ns, const std::string& name,
                   const kube::FieldPaths& fields) override;
  Result<kube::ListEnd> List(const kube::Resource& resource, const std::string& ns, const kube::ListOptions& options,
                             const std::function<void(const Json&)>& on_item) override;
  Result<Json> Create(const kube::Resource& resource, const std::string& ns, const Json& object,
                      const kube::WriteOptions& options) override;
  Result<Json> MergePatch(const kube::Resource& resource, const std::string& ns, const std::string& name,
                          const std::string& subresource, const Json& patch,
                          const kube::WriteOptions& options) override;
  Status Delete(const kube::Resource& resource, const std::string& ns, const std::string& name,
                const kube::DeleteOptions& options) override;
  Status Watch(const kube::Resource& resource, const std::string& ns, const kube::WatchOptions& options,
               const std::function<bool(kube::WatchEvent)>& on_event, const kube::StopFlag& stop) override;

  int64_t writes() const { return writes_; }
  // The version up to which a watch or list of `resource` was delivered.
  uint64_t seen(const kube::Resource& resource) const;
  // Before each request that is no watch: kind of request, and what it is about.
  std::function<void(const char* verb, const kube::Resource&, const std::string& name, const Json* object)> on_request;
  // A pod was created, and who asked for it does not hear so.
  std::function<void()> on_lost_creation;
  // Around each request at the server: who makes it.
  std::function<void(bool begins)> at_server;

 private:
  // The time until a request reaches the server, and what goes wrong with it on the way.
  Status Before();
  // Whether the answer to a call that was made is lost.
  bool LosesAnswer();
  bool QuotaIsFull() const;

  local::MemoryApi& api_;
  const Mirror& mirror_;
  VirtualClock& clock_;
  Dice& dice_;
  const Trouble& trouble_;
  const std::function<void()> pause_;
  std::map<std::string, uint64_t> seen_;  // by plural
  int64_t writes_ = 0;
};

}  // namespace trainyard::sim

#endif  // TRAINYARD_TESTS_SIM_TROUBLED_CLIENT_H_
