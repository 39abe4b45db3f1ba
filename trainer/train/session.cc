#include "trainer/train/session.h"

#include <nlohmann/json.hpp>

#include "operator/api/worker_env.h"
#include "trainer/base/environment.h"
#include "trainer/base/error.h"
#include "trainer/base/stop_signal.h"
#include "trainer/base/text.h"
#include "trainer/comm/c10d_store.h"
#include "trainer/comm/gloo.h"
#include "trainer/launch/route.h"
#include "trainer/train/run_directory.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;
using Seconds = std::chrono::duration<double>;

void WriteAttempt(const Attempt& attempt, Session& session) {
  session.job_uid = attempt.job_uid;
  session.attempt = attempt.number;
}

}  // namespace

Session JoinWorld(const Config& config, const std::string& data_fingerprint) {
  Session session;
  session.world = WorldFromEnvironment();
  const World& world = session.world;
  if (world.size == 1) {
    WriteAttempt(ClaimRunDirectory(config, data_fingerprint), session);
    session.store = std::make_shared<MemoryStore>();
    session.communicator = MakeSingleCommunicator();
    return session;
  }
  const Seconds deadline(config.parallel.rendezvous_seconds);
  auto connection = std::make_shared<C10dStore>(C10dStoreOptions{.host = world.master_addr,
                                                                 .port = world.master_port,
                                                                 .host_here = world.rank == 0 && !world.store_is_hosted,
                                                                 .listen_fd = {},
                                                                 .timeout = deadline,
                                                                 .stop = StopRequested});
  // torchrun's store outlives a restart of its workers: what an earlier start left is not ours.
  const std::string start = EnvText("TORCHELASTIC_RUN_ID") + "/" + EnvText("TORCHELASTIC_RESTART_COUNT") + "/";
  auto store = std::make_shared<PrefixStore>(connection, start);
  if (world.rank == 0) {
    WriteAttempt(ClaimRunDirectory(config, data_fingerprint), session);
    store->Set("trainyard/attempt", Json{{"uid", session.job_uid}, {"attempt", session.attempt}}.dump());
  } else {
    const Json claimed =
        Json::parse(store->Wait("trainyard/attempt", deadline, "rank 0 to claim the run directory", StopRequested));
    WriteAttempt({claimed["uid"].get<std::string>(), claimed["attempt"].get<int64_t>()}, session);
  }
  const std::string prefix = Format("attempt-%lld/", static_cast<long long>(session.attempt));
  session.store = std::make_shared<PrefixStore>(store, prefix);
  // Everyone says that it is there before the group connects: a rank that never comes is then named.
  session.store->Set(Format("rank/%d", world.rank), "here");
  for (int rank = 0; rank < world.size; ++rank) {
    session.store->Wait(Format("rank/%d", rank), deadline,
                        Format("rank %d of %d to join (parallel.rendezvous_seconds)", rank, world.size), StopRequested);
  }
  const std::string pod_ip = EnvText(env::kPodIp);
  session.communicator =
      MakeGlooCommunicator(*connection, {.rank = world.rank,
                                         .size = world.size,
                                         .prefix = start + prefix + "gloo",
                                         .interface = !pod_ip.empty() ? pod_ip : LocalAddressTowards(world.master_addr),
                                         .rendezvous_timeout = deadline,
                                         .collective_timeout = Seconds(config.parallel.collective_seconds)});
  return session;
}

}  // namespace trainyard
