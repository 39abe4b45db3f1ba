#include "trainer/launch/world.h"

#include <regex>

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
  // A step may have fewer nodes than the job.
  const char* name = EnvText("SLURM_STEP_NODELIST").empty() ? "SLURM_JOB_NODELIST" : "SLURM_STEP_NODELIST";
  std::string first = FirstSlurmHost(name, EnvText(name));
  RequireAddress(first, "SLURM_NNODES is more than 1, and SLURM_STEP_NODELIST and SLURM_JOB_NODELIST are empty");
  return first;
}

// Ranks of a node: in SLURM_TASKS_PER_NODE, `2(x3),1` is 2, 2, 2, 1.
int SlurmTasks(int node, int nodes, int size) {
  constexpr char kName[] = "SLURM_TASKS_PER_NODE";
  const std::string text = EnvText(kName);
  if (text.empty() && size % nodes == 0) return size / nodes;
  if (text.empty())
    throw ConfigError(Format("%s: missing, although SLURM_NTASKS is %d and SLURM_NNODES %d: how many are on which?",
                             kName, size, nodes));
  for (const std::string& part : Split(text, ',')) {
    static const std::regex form(R"(([1-9]\d{0,4})(?:\(x([1-9]\d{0,4})\))?)");
    std::smatch match;
    if (!std::regex_match(part, match, form))
      throw ConfigError(
          Format("%s: %s is not allowed; expected tasks of each node, as in 2(x3),1", kName, text.c_str()));
    node -= match[2].matched ? std::stoi(match[2]) : 1;
    if (node < 0) return std::stoi(match[1]);
  }
  throw ConfigError(Format("%s: %s is not allowed; it ends before node %s (SLURM_NODEID)", kName, text.c_str(),
                           EnvText("SLURM_NODEID").c_str()));
}

World SlurmWorld() {
  World world;
  world.rank = Need("SLURM_PROCID", 0, kMaxRanks);
  world.size = Need("SLURM_NTASKS", 1, kMaxRanks);
  world.local_rank = Need("SLURM_LOCALID", 0, kMaxRanks);
  world.node = EnvInt("SLURM_NODEID", 0, kMaxRanks).value_or(0);
  const int nodes = EnvInt("SLURM_NNODES", 1, world.size).value_or(1);
  world.local_size = SlurmTasks(world.node, nodes, world.size);
  world.master_addr = SlurmMaster(nodes);
  world.master_port = EnvPort(env::kMasterPort).value_or(SlurmPort());
  RequireRank(world.rank, world.size, "SLURM_PROCID");
  return world;
}

// The nodes of a world that is given in ranks.
void ReadNodesOf(int ranks, NodeWorld& node) {
  const int local = EnvInt(env::kLocalWorldSize, 1, kMaxRanks).value_or(1);
  if (node.procs != local)
    throw ConfigError(Format("--nproc (%s): %d is not allowed; %s is %d, and %s (1 where it is missing) says %d a node",
                             env::kPetProcsPerNode, node.procs, env::kWorldSize, ranks, env::kLocalWorldSize, local));
  if (ranks % local != 0)
    throw ConfigError(Format("%s: %d is not allowed; expected a multiple of %s, which is %d", env::kWorldSize, ranks,
                             env::kLocalWorldSize, local));
  node.nodes = ranks / local;
  const int rank = EnvInt(env::kRank, 0, kMaxRanks).value_or(0);
  node.node = EnvInt(env::kGroupRank, 0, kMaxRanks).value_or(rank / local);
}

// How many nodes there are, which one this is, and what SLURM says of the master.
void ReadNodes(const NodeFlags& flags, NodeWorld& node) {
  std::optional<int> nodes = flags.nodes;
  if (!nodes) nodes = EnvInt(env::kPetNodes, 1, kMaxRanks);
  const std::optional<int> ranks = EnvInt(env::kWorldSize, 1, kMaxRanks);
  const std::optional<int> slurm = EnvInt("SLURM_NNODES", 1, kMaxRanks);
  if (!nodes && ranks) {
    ReadNodesOf(*ranks, node);
  } else {
    node.nodes = nodes ? *nodes : slurm.value_or(1);
    std::optional<int> number = EnvInt(env::kPetNodeRank, 0, kMaxRanks);
    // SLURM's numbers are those of a world of as many nodes: several worlds may share an allocation.
    const bool is_slurms = slurm == node.nodes && node.nodes > 1;
    if (is_slurms && !number) number = EnvInt("SLURM_NODEID", 0, kMaxRanks);
    if (node.nodes > 1 && !number && !flags.node)
      throw ConfigError(Format("--node-rank (%s): missing; expected which of the %d nodes this is, from 0",
                               env::kPetNodeRank, node.nodes));
    node.node = number.value_or(0);
    if (is_slurms && flags.master.empty()) {
      node.master_addr = SlurmMaster(node.nodes);
      node.master_port = SlurmPort();
    }
  }
  if (flags.node) node.node = *flags.node;
  if (node.node >= node.nodes)
    throw ConfigError(Format("the node's number: %d is not allowed; there are %d nodes", node.node, node.nodes));
  if (int64_t{node.nodes} * node.procs > kMaxRanks)
    throw ConfigError(
        Format("%s: %d nodes of %d ranks are more than %d ranks", env::kPetNodes, node.nodes, node.procs, kMaxRanks));
}

// "host", "host:29500", "[fe80::1]:29500".
void ReadMaster(const std::string& master, NodeWorld& node) {
  static const std::regex form(R"((\[[^\]]+\]|[^:\[\]]+)(?::(\d{1,5}))?|([0-9a-fA-F]*(?::[0-9a-fA-F.]*){2,}))");
  std::smatch match;
  const bool good = std::regex_match(master, match, form);
  const int port = good && match[2].matched ? std::stoi(match[2]) : 0;
  if (!good || (match[2].matched && (port < 1 || port > 65535)))
    throw ConfigError("--master: " + master + " is not allowed; expected HOST or HOST:PORT of the first node");
  node.master_addr = match[3].matched ? match[3].str() : match[1].str();
  if (node.master_addr.front() == '[') node.master_addr = node.master_addr.substr(1, node.master_addr.size() - 2);
  if (port > 0) node.master_port = port;
}

}  // namespace

std::string FirstSlurmHost(const char* name, const std::string& node_list) {
  const size_t end = node_list.find_first_of(",[]");
  if (end == std::string::npos || node_list[end] == ',') return node_list.substr(0, end);
  const size_t number = end + 1, behind = node_list.find_first_not_of("0123456789", number);
  const size_t close = node_list.find(']', number);
  if (node_list[end] == ']' || behind == number || close == std::string::npos ||
      (close + 1 < node_list.size() && node_list[close + 1] != ','))
    throw ConfigError(
        Format("%s: %s is not allowed; expected a list like node[03-05,7],b1, with nothing behind a bracket. The first "
               "host can be named in %s",
               name, node_list.c_str(), env::kMasterAddr));
  return node_list.substr(0, end) + node_list.substr(number, behind - number);
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

NodeWorld NodeWorldFromEnvironment(const NodeFlags& flags) {
  NodeWorld node;
  std::optional<int> nproc = flags.nproc;
  if (!nproc) nproc = EnvInt(env::kPetProcsPerNode, 1, kMaxRanks);
  if (!nproc) nproc = EnvInt(env::kLocalWorldSize, 1, kMaxRanks);
  node.procs = nproc.value_or(1);
  ReadNodes(flags, node);
  for (const char* name : {env::kPetMasterAddr, env::kMasterAddr}) {  // The later one wins.
    if (const std::string address = EnvText(name); !address.empty()) node.master_addr = address;
  }
  for (const char* name : {env::kPetMasterPort, env::kMasterPort}) {
    if (const std::optional<int> port = EnvPort(name)) node.master_port = *port;
  }
  if (!flags.master.empty()) ReadMaster(flags.master, node);
  if (node.nodes > 1 && node.master_port == 0) node.master_port = kDefaultPort;
  if (node.node > 0) RequireAddress(node.master_addr, "this is not the first node");
  return node;
}

}  // namespace trainyard
