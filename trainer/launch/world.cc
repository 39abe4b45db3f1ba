#include "trainer/launch/world.h"

#include "operator/api/worker_env.h"
#include "trainer/base/environment.h"
#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/text.h"

namespace trainyard {
namespace {

constexpr int kDefaultPort = 29500;  // torchrun's

int Need(const char* name, int64_t low) {
  const std::optional<int64_t> value = EnvInt(name, low);
  if (!value) throw ConfigError(std::string(name) + ": missing, although other variables of the world are set");
  return static_cast<int>(*value);
}

void RequireRank(int rank, int size, const char* name) {
  if (rank >= size) throw ConfigError(Format("%s: %d is not allowed; the world has %d ranks", name, rank, size));
}

World SlurmWorld() {
  World world;
  world.rank = Need("SLURM_PROCID", 0);
  world.size = Need("SLURM_NTASKS", 1);
  world.local_rank = Need("SLURM_LOCALID", 0);
  world.node = static_cast<int>(EnvInt("SLURM_NODEID").value_or(0));
  const int nodes = static_cast<int>(EnvInt("SLURM_NNODES", 1).value_or(1));
  world.local_size = world.size / nodes;
  const std::string master = EnvText(env::kMasterAddr), list = EnvText("SLURM_JOB_NODELIST");
  world.master_addr = !master.empty() ? master : list.empty() || nodes == 1 ? "127.0.0.1" : FirstSlurmHost(list);
  // One port per job: two jobs of a node do not meet.
  const int64_t job = EnvInt("SLURM_JOB_ID").value_or(0);
  world.master_port = static_cast<int>(EnvInt(env::kMasterPort, 1).value_or(20000 + job % 10000));
  RequireRank(world.rank, world.size, "SLURM_PROCID");
  return world;
}

}  // namespace

std::string FirstSlurmHost(const std::string& node_list) {
  const size_t end = node_list.find_first_of(",[");
  if (end == std::string::npos || node_list[end] == ',') return node_list.substr(0, end);
  return node_list.substr(0, end) + node_list.substr(end + 1, node_list.find_first_of(",-]", end + 1) - end - 1);
}

World WorldFromEnvironment() {
  if (EnvText(env::kRank).empty() && EnvText(env::kWorldSize).empty()) {
    return EnvText("SLURM_PROCID").empty() ? World{} : SlurmWorld();
  }
  World world;
  world.rank = Need(env::kRank, 0);
  world.size = Need(env::kWorldSize, 1);
  world.local_rank = static_cast<int>(EnvInt(env::kLocalRank).value_or(0));
  world.local_size = static_cast<int>(EnvInt(env::kLocalWorldSize, 1).value_or(1));
  world.node = static_cast<int>(EnvInt(env::kGroupRank).value_or(0));
  world.store_is_hosted = EnvText(env::kUseAgentStore) == "True";
  if (const std::string master = EnvText(env::kMasterAddr); !master.empty()) world.master_addr = master;
  const std::optional<int64_t> port = EnvInt(env::kMasterPort, 1);
  world.master_port = static_cast<int>(port.value_or(world.size > 1 ? kDefaultPort : 0));
  RequireRank(world.rank, world.size, env::kRank);
  return world;
}

NodeWorld NodeWorldFromEnvironment(std::optional<int> nproc) {
  NodeWorld node;
  const std::optional<int64_t> pet_nodes = EnvInt(env::kPetNodes, 1), local = EnvInt(env::kLocalWorldSize, 1);
  node.procs = nproc.value_or(static_cast<int>(EnvInt(env::kPetProcsPerNode, 1).value_or(local.value_or(1))));
  if (pet_nodes) {
    node.nodes = static_cast<int>(*pet_nodes);
    node.node = static_cast<int>(EnvInt(env::kPetNodeRank).value_or(0));
  } else if (const std::optional<int64_t> world = EnvInt(env::kWorldSize, 1)) {
    node.nodes = static_cast<int>(*world / local.value_or(1));
    node.node = static_cast<int>(EnvInt(env::kGroupRank).value_or(EnvInt(env::kRank).value_or(0)));
  } else if (const std::optional<int64_t> slurm = EnvInt("SLURM_NNODES", 1)) {
    node.nodes = static_cast<int>(*slurm);
    node.node = static_cast<int>(EnvInt("SLURM_NODEID").value_or(0));
    if (node.nodes > 1) node.master_addr = FirstSlurmHost(EnvText("SLURM_JOB_NODELIST"));
    if (node.nodes > 1) node.master_port = static_cast<int>(20000 + EnvInt("SLURM_JOB_ID").value_or(0) % 10000);
  }
  RequireRank(node.node, node.nodes, "the node's number");
  const std::string master = EnvText(env::kMasterAddr), pet_master = EnvText(env::kPetMasterAddr);
  if (!master.empty() || !pet_master.empty()) node.master_addr = !master.empty() ? master : pet_master;
  if (const std::optional<int64_t> port = EnvInt(env::kMasterPort, 1)) node.master_port = static_cast<int>(*port);
  if (const std::optional<int64_t> port = EnvInt(env::kPetMasterPort, 1); port && node.master_port == 0)
    node.master_port = static_cast<int>(*port);
  if (node.nodes > 1 && node.master_port == 0) node.master_port = kDefaultPort;
  if (const std::string file = EnvText(env::kMasterFile); !file.empty())
    node.master_file = ResolveVolume(file).string();
  return node;
}

}  // namespace trainyard
