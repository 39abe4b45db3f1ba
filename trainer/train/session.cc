#include "trainer/train/session.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "common/build_info.h"
#include "operator/api/worker_env.h"
#include "trainer/base/environment.h"
#include "trainer/base/error.h"
#include "trainer/base/stop_signal.h"
#include "trainer/base/text.h"
#include "trainer/comm/c10d_store.h"
#include "trainer/comm/gathering.h"
#include "trainer/comm/gloo.h"
#include "trainer/comm/signs_of_life.h"
#include "trainer/config/load.h"
#include "trainer/device/open_device.h"
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

// Rank 0's part.
void Claim(const Config& config, const Dataset& data, const Tick& tick, Session& session) {
  session.fingerprint = FingerprintOf(config, data.fingerprint(tick), tick);
  WriteAttempt(ClaimRunDirectory(config, session.fingerprint), session);
  session.predecessor = RunningMark::Holder(config.run.dir);
  if (!session.predecessor.empty()) {
    session.predecessor += " of this run";
  } else if (const std::string other = RunningMark::Holder(config.checkpoint.dir); !other.empty()) {
    session.predecessor = other + " of another run, with this checkpoint.dir,";
  }
}

// What the ranks of a run must have in common: else each would train something of its own.
Json CommonOf(const Config& config, const Dataset& data) {
  return {{"build", std::string(Build().version) + " (" + Build().commit + ")"},
          {"config", ToJson(config)},
          {"samples", data.size()}};
}

// Which start of which world this is: what whoever started the ranks gave all of them.
Json StartOf(const World& world) {
  return {{"ranks", world.size}, {"job", EnvText(env::kJobUid)}, {"attempt", EnvText(env::kAttempt)}};
}

// Of the keys of an attempt.
std::string AttemptPrefix(int64_t attempt) { return Format("attempt-%lld/", static_cast<long long>(attempt)); }

// Throws StrangerError where `first`, rank 0's, is another one.
void RequireSameStart(const Json& first, const World& world) {
  const Json mine = StartOf(world);
  for (const auto& [name, value] : mine.items()) {
    const bool unsaid = value.is_string() && value.get<std::string>().empty();
    if (unsaid || first[name] == value) continue;
    // Another job's or attempt's rank 0 may be found for a moment, behind an address; the next attempt meets its own.
    const ExitCode code = name == "ranks" ? ExitCode::kConfig : ExitCode::kPeer;
    throw StrangerError(
        Format("rank 0's world is another one: %s %s, and this rank's %s; every node needs the same numbers of nodes "
               "and ranks, and each run a %s of its own",
               name.c_str(), first[name].dump().c_str(), value.dump().c_str(), env::kMasterPort),
        code);
  }
}

// Throws ConfigError or DataError where this rank's is not rank 0's, which `first` is, with its glance at the data.
void RequireCommon(const Json& first, const Config& config, const Dataset& data, const Tick& tick, int rank) {
  const Json mine = CommonOf(config, data);
  if (first["build"] != mine["build"])
    throw ConfigError(Format("rank %d is trainyard %s and rank 0 is %s: the ranks of a run need one image", rank,
                             mine["build"].get<std::string>().c_str(), first["build"].get<std::string>().c_str()));
  // What Resolved has put in the place of `auto`.
  constexpr std::array<std::string_view, 4> kOfMachine = {"parallel.device", "parallel.stage", "precision.compute",
                                                          "run.deterministic"};
  std::vector<std::string> parts;
  bool of_machine = true;
  for (const ConfigDifference& difference : CompareRanks(first["config"], config)) {
    parts.push_back(difference.path + ": " + difference.after + ", not " + difference.before);
    of_machine = of_machine && std::ranges::find(kOfMachine, difference.path) != kOfMachine.end();
  }
  if (!parts.empty())
    throw ConfigError(Format("rank %d has another configuration than rank 0: %s; %s", rank, Join(parts, "; ").c_str(),
                             of_machine
                                 ? "what is auto follows from each rank's machine, and theirs differ: set it, or "
                                   "start the ranks on machines of one kind"
                                 : "was the file changed while the ranks were started?"));
  if (first["samples"] != mine["samples"])
    throw DataError(Format("data.path: %lld samples for rank %d and %lld for rank 0: every rank needs the same data",
                           mine["samples"].get<long long>(), rank, first["samples"].get<long long>()));
  if (first["glance"] != data.glance(tick))
    throw DataError(
        Format("data.path: rank %d has other data than rank 0, of as many samples: every rank needs the same "
               "data",
               rank));
}

constexpr char kComplete[] = "complete";  // of this start's world, whatever its attempt

// torchrun's store outlives a restart of its workers: what an earlier start left is not ours.
std::string StartPrefix() { return EnvText("TORCHELASTIC_RUN_ID") + "/" + EnvText("TORCHELASTIC_RESTART_COUNT") + "/"; }

std::shared_ptr<Store> StoreOf(const World& world, Seconds deadline, Seconds collective) {
  return std::make_shared<WorldStore>(
      std::make_shared<C10dStore>(C10dStoreOptions{.host = world.master_addr,
                                                   .port = world.master_port,
                                                   .host_here = world.rank == 0 && !world.store_is_hosted,
                                                   .listen_fd = {},
                                                   .timeout = deadline,
                                                   .stop = StopRequested,
                                                   .answer = std::min(C10dStoreOptions{}.answer, collective)}),
      StartPrefix());
}

void JoinAlone(const Config& config, const Dataset& data, Session& session) {
  const auto obey = [&] {
    if (StopRequested()) throw StoppedError("stopped on request while the data was read");
    if (session.life.alive) session.life.alive();
  };
  Claim(config, data, obey, session);
  session.store = std::make_shared<MemoryStore>();
  session.communicator = session.device->Connect(session.store, {});
  session.control = MakeSingleCommunicator();
}

// Rank 0 claims, and says which attempt this is; the others compare what they have with rank 0's, and take that.
void ClaimTogether(const Config& config, const Dataset& data, SignsOfLife& signs, Store& store, Session& session) {
  const Tick tick = [&] { signs.Beat(); };
  if (session.world.rank == 0) {
    const std::string glance = data.glance(tick);
    Claim(config, data, tick, session);
    Json claimed = CommonOf(config, data);
    claimed["start"] = StartOf(session.world);
    claimed["glance"] = glance;
    claimed["uid"] = session.job_uid;
    claimed["attempt"] = session.attempt;
    store.Set("claim/attempt", claimed.dump());
  } else {
    const Json claimed = Json::parse(signs.Wait("attempt", 0, "rank 0 to claim the run directory"));
    try {
      RequireSameStart(claimed["start"], session.world);
    } catch (const StrangerError& error) {  // for those who wait for somebody else
      store.Set(AttemptPrefix(claimed["attempt"].get<int64_t>()) + kStrangerKey, error.what());
      throw;
    }
    RequireCommon(claimed, config, data, tick, session.world.rank);
    WriteAttempt({claimed["uid"].get<std::string>(), claimed["attempt"].get<int64_t>()}, session);
  }
}

// Who is frozen cannot say where it stands; so the ranks say it while their pulses are listened to.
std::string WhoIsSilent(Pulse& pulse, HangWatch& hang) {
  hang.Ask();
  const std::optional<Pulse::Quiet> quiet = pulse.Silence();
  if (quiet && !quiet->left) return quiet->sentence;
  // Who came too late and has left since may have said where it stood; if not by now, it never will, and the others
  // have had the time of Silence to say it.
  std::string verdict = quiet ? hang.Explain(std::chrono::milliseconds(700)) : hang.Explain();
  if (!verdict.empty()) return verdict;
  return quiet ? quiet->sentence
               : "every rank is alive: one takes longer for its part than that, and a larger "
                 "parallel.collective_seconds waits for it";
}

Session Join(const Config& config, const Dataset& data, const Joining& joining) {
  Session session;
  session.life.alive = joining.alive;
  session.world = WorldFromEnvironment();
  const World& world = session.world;
  session.device = OpenDevice(config.parallel.device, world.local_rank);
  if (world.size == 1) {
    JoinAlone(config, data, session);
    return session;
  }
  const Seconds deadline(config.parallel.rendezvous_seconds), collective(config.parallel.collective_seconds);
  const std::shared_ptr<Store> store = StoreOf(world, deadline, collective);
  SignsOfLife signs(std::make_shared<PrefixStore>(store, "claim/"), world.rank, StopRequested,
                    {.silence = deadline, .alive = session.life.alive});
  ClaimTogether(config, data, signs, *store, session);
  session.store = std::make_shared<PrefixStore>(store, AttemptPrefix(session.attempt));
  // Before the group connects, which nothing can stop: a rank that never comes is named here.
  Gather(*session.store, world.rank, world.size, deadline, StopRequested);
  joining.joined();
  store->Set(kComplete, "");
  session.pulse = std::make_unique<Pulse>(session.store, world.rank, world.size);
  // Also where ranks wait for files, who is frozen is not waited for longer than in a collective.
  session.life.pulse = Pulse::Of(session.store);
  // Sooner than for silence, so that of ranks that wait for each other the last one is named.
  session.life.frozen = std::min<Seconds>(session.life.silence / 2, collective + Pulse::kListen);
  session.hang = std::make_unique<HangWatch>(std::make_shared<PrefixStore>(session.store, "hang/"), world.rank,
                                             world.size, joining.named);
  const std::string pod_ip = EnvText(env::kPodIp);
  ConnectOptions options{
      .rank = world.rank,
      .size = world.size,
      .interface = !pod_ip.empty() ? pod_ip : LocalAddressTowards(world.master_addr, world.size > world.local_size),
      .rendezvous_timeout = deadline,
      .collective_timeout = collective,
      .who_is_silent = [pulse = session.pulse.get(), hang = session.hang.get()] { return WhoIsSilent(*pulse, *hang); },
      .stuck = joining.stuck,
      .recorder = &session.hang->recorder(),
      .group = "tensors"};
  session.communicator = session.device->Connect(std::make_shared<PrefixStore>(session.store, "tensors/"), options);
  options.group = "control";
  session.control = MakeGlooCommunicator(std::make_shared<PrefixStore>(session.store, "control/"), options);
  return session;
}

}  // namespace

Session JoinWorld(const Config& config, const Dataset& data, const Joining& joining) {
  try {
    return Join(config, data, joining);
  } catch (const PeerError& error) {
    // Who stops a job stops all its nodes: the store may be gone before this rank looks at its own stop.
    if (!StopRequested()) throw;
    throw StoppedError(std::string("stopped on request while the ranks met: ") + error.what());
  }
}

void SayEnded(const World& world, bool joined, const std::string& why) {
  if (world.size == 1 || (world.rank == 0 && !world.store_is_hosted)) return;  // Our store goes with us.
  try {
    auto connection = std::make_shared<C10dStore>(C10dStoreOptions{.host = world.master_addr,
                                                                   .port = world.master_port,
                                                                   .host_here = false,
                                                                   .listen_fd = {},
                                                                   .timeout = Seconds(1),
                                                                   .stop = {},
                                                                   .answer = Seconds(1)});
    WorldStore store(connection, StartPrefix());
    if (joined || !store.Get(kComplete)) store.SayEnded(world.rank, why);
  } catch (const Error&) {
    // Then nobody waits there either.
  }
}

}  // namespace trainyard
