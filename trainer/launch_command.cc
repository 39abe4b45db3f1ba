#include "trainer/launch_command.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "operator/api/worker_env.h"
#include "trainer/base/environment.h"
#include "trainer/base/error.h"
#include "trainer/comm/c10d_store.h"
#include "trainer/launch/child.h"
#include "trainer/launch/launcher.h"
#include "trainer/launch/preflight.h"
#include "trainer/launch/route.h"
#include "trainer/metrics/status_server.h"
#include "trainer/train/places.h"
#include "trainer/train/plan.h"
#include "trainer/train/session.h"

namespace trainyard {
namespace {

// Becomes `trainyard train` with these options. Returns only when the system refuses.
int ExecuteRank(const CommonOptions& options) {
  std::vector<std::string> words = {"/proc/self/exe", "train"};
  if (!options.config.empty()) words.insert(words.end(), {"--config", options.config});
  for (const std::string& set : options.sets) words.insert(words.end(), {"--set", set});
  if (!options.record.empty()) words.insert(words.end(), {"--record", options.record});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv(arguments[0], arguments.data());
  std::fprintf(stderr, "trainyard: cannot execute %s: %s\n", arguments[0], std::strerror(errno));
  return errno == ENOENT ? 127 : 126;
}

}  // namespace

int LaunchCommand(const CommonOptions& options, const std::string& nproc, NodeFlags nodes, bool quiet,
                  const ProcessTitle& title) {
  RequireRereadable(options.config);
  const Config config = Load(options);  // A mistake is named once, before any process is started.
  std::optional<int> procs;
  if (nproc == "auto") {
    // Without GPUs one rank uses all processors through its threads.
    procs = std::max(
        1, CountApart("the GPUs", [&] { return static_cast<int>(GroundsHere(config, {}).hardware.gpus.size()); }));
  } else if (!nproc.empty()) {
    if (nproc.find_first_not_of("0123456789") != std::string::npos || nproc.size() > 4 || std::stoi(nproc) < 1) {
      throw UsageError("--nproc: " + nproc + " is not allowed; expected a number >= 1, or auto");
    }
    procs = std::stoi(nproc);
  }
  LaunchOptions launch;
  nodes.nproc = procs;
  launch.world = NodeWorldFromEnvironment(nodes);
  RequireSensible(launch.world);
  // Who traces programs may see no fork: a rank then is a program of its own.
  const bool forkable = IsForkable();
  launch.rank = [&, forkable] {
    if (!forkable) return ExecuteRank(options);
    title.Set("trainyard: rank " + EnvText(env::kRank) + " of " + EnvText(env::kWorldSize));
    return Guarded("train", [&] { return TrainCommand(options, false); });
  };
  launch.rank0_address = StatusAddressFromEnvironment();
  // Where the others look for it. Nobody who names the first node need name it once more.
  if (!nodes.master.empty() && launch.world.nodes > 1 && launch.world.node == 0 && EnvText(env::kPodIp).empty())
    launch.store_address = LocalAddressTowards(launch.world.master_addr, true);
  if (launch.world.nodes > 1 && launch.world.node == 0 && launch.store_address.empty() &&
      launch.rank0_address == "127.0.0.1")
    std::fprintf(
        stderr, "warning: ranks of other machines do not reach 127.0.0.1, where this node serves; --master names it\n");
  const std::string store = launch.store_address.empty() ? launch.rank0_address : launch.store_address;
  launch.status_port = StatusPortFromEnvironment();
  launch.termination_log = EnvText(env::kTerminationLog);
  launch.quiet = quiet;
  const StoreFactory stores{[&](int fd, int port) -> std::unique_ptr<Store> {
                              return std::make_unique<C10dStore>(C10dStoreOptions{.host = store,
                                                                                  .port = port,
                                                                                  .host_here = true,
                                                                                  .listen_fd = fd,
                                                                                  .timeout = std::chrono::seconds(30),
                                                                                  .stop = {}});
                            },
                            [&](const std::string& address, int port) -> std::unique_ptr<Store> {
                              return std::make_unique<C10dStore>(C10dStoreOptions{.host = address,
                                                                                  .port = port,
                                                                                  .host_here = false,
                                                                                  .listen_fd = {},
                                                                                  .timeout = std::chrono::seconds(1),
                                                                                  .stop = {}});
                            }};
  if (launch.world.node == 0) {
    try {
      CheckPlaces(config);
    } catch (const Error& error) {
      const int ranks = launch.world.nodes * launch.world.procs;
      TellOtherNodes(launch, stores, [&](int port) {
        SayEnded({.size = ranks, .master_addr = store, .master_port = port, .store_is_hosted = true}, true,
                 error.what());
      });
      throw;
    }
  }
  return Launch(launch, stores);
}

}  // namespace trainyard
