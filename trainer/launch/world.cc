#include "trainer/launch/world.h"

#include "operator/api/worker_env.h"
#include "trainer/base/environment.h"
#include "trainer/base/error.h"
#include "trainer/base/text.h"

namespace trainyard {
namespace {

constexpr int kDefaultPort = 29500;  // torchrun's

int Need(const char* name, int low, int high) {
  const std::optional<int> value = EnvInt(name, low, high);
  if (!value) throw ConfigError(std::string(name) + ": missing, although other variables of the world are set");
  return *value;
}

void RequireRank(int rank, int size, const char* name) {
  if (rank >= size) throw ConfigError(Format("%s: %d is not allowed; the world has %d ranks", name, rank, size));
}

void RequireAddress(const std::string& address, const char* world) {
  if (address.empty())
    throw ConfigError(Format("%s: missing, although %s; it is the address of rank 0", env::kMasterAddr, world));
}

// One port per job: two jobs of a node do not meet.
int SlurmPort() { return static_cast<int>(20000 + EnvInt64("SLURM_JOB_ID", 0, INT64_MAX).value_or(0) % 10000); }

// `SLURM_NNODES` hosts are one or many; the first of them is the master unless MASTER_ADDR says so.
std::string SlurmMaster(int nodes) {
  const std::string master = EnvText(env::kMasterAddr);
  if (!master.empty() || nodes == 1) return master.empty() ? "127.0.0.1" : master;
  std::string first = FirstSlurmHost(EnvText("SLURM_JOB_NODELIST"));
  RequireAddress(first, "SLURM_NNODES is more than 1 and SLURM_JOB_NODELIST is empty");
  return first;
}

World SlurmWorld() {
  World world;
  world.rank = Need("SLURM_PROCID", 0, kMaxRanks);
  world.size = Need("SLURM_NTASKS", 1, kMaxRanks);
  world.local_rank = Need("SLURM_LOCALID", 0, kMaxRanks);
  world.node = EnvInt("SLURM_NODEID", 0, kMaxRanks).value_or(0);
  const int nodes = EnvInt("SLURM_NNODES", 1, world.size).value_or(1);
  world.local_size = world.size / nodes;
  world.master_addr = SlurmMaster(nodes);
  world.master_port = EnvPort(env::kMasterPort).value_or(SlurmPort());
  RequireRank(world.rank, world.size, "SLURM_PROCID");
  return world;
}

// How many nodes there are, which one this is, and what SLURM says of the master.
void ReadNodes(NodeWorld& node) {
  const int local = EnvInt(env::kLocalWorldSize, 1, kMaxRanks).value_or(1);
  if (const std::optional<int> pet_nodes = EnvInt(env::kPetNodes, 1, kMaxRanks)) {
    node.nodes = *pet_nodes;
    node.node = EnvInt(env::kPetNodeRank, 0, kMaxRanks).value_or(0);
  } else if (const std::optional<int> world = EnvInt(env::kWorldSize, local, kMaxRanks)) {
    node.nodes = *world / local;
    node.node = EnvInt(env::kGroupRank, 0, kMaxRanks).value_or(EnvInt(env::kRank, 0, kMaxRanks).value_or(0));
  } else if (const std::optional<int> slurm = EnvInt("SLURM_NNODES", 1, kMaxRanks)) {
    node.nodes = *slurm;
    node.node = EnvInt("SLURM_NODEID", 0, kMaxRanks).value_or(0);
    if (node.nodes > 1) node.master_addr = SlurmMaster(node.nodes);
    if (node.nodes > 1) node.master_port = SlurmPort();
  }
  if (node.node >= node.nodes)
    throw ConfigError(Format("the node's number: %d is not allowed; there are %d nodes", node.node, node.nodes));
  if (int64_t{node.nodes} * node.procs > kMaxRanks)
    throw ConfigError(
        Format("%s: %d nodes of %d ranks are more than %d ranks", env::kPetNodes, node.nodes, node.procs, kMaxRanks));
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
  world.rank = Need(env::kRank, 0, kMaxRanks);
  world.size = Need(env::kWorldSize, 1, kMaxRanks);
  world.local_rank = EnvInt(env::kLocalRank, 0, kMaxRanks).value_or(0);
  world.local_size = EnvInt(env::kLocalWorldSize, 1, world.size).value_or(1);
  world.node = EnvInt(env::kGroupRank, 0, kMaxRanks).value_or(0);
  world.store_is_hosted = EnvText(env::kUseAgentStore) == "True";
  world.master_port = EnvPort(env::kMasterPort).value_or(world.size > 1 ? kDefaultPort : 0);
  RequireRank(world.rank, world.size, env::kRank);
  if (world.size > 1) {
    world.master_addr = EnvText(env::kMasterAddr);
    RequireAddress(world.master_addr, "WORLD_SIZE is more than 1");
  }
  return world;
}

NodeWorld NodeWorldFromEnvironment(std::optional<int> nproc) {
  NodeWorld node;
  if (!nproc) nproc = EnvInt(env::kPetProcsPerNode, 1, kMaxRanks);
  if (!nproc) nproc = EnvInt(env::kLocalWorldSize, 1, kMaxRanks);
  node.procs = nproc.value_or(1);
  ReadNodes(node);
  for (const char* name : {env::kPetMasterAddr, env::kMasterAddr}) {  // The later one wins.
    if (const std::string address = EnvText(name); !address.empty()) node.master_addr = address;
  }
  for (const char* name : {env::kPetMasterPort, env::kMasterPort}) {
    if (const std::optional<int> port = EnvPort(name)) node.master_port = *port;
  }
  if (node.nodes > 1 && node.master_port == 0) node.master_port = kDefaultPort;
  if (node.node > 0) RequireAddress(node.master_addr, "this is not the first node");
  return node;
}

}  // namespace trainyard
