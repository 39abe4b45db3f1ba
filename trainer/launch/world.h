// Which rank this process is, and how a launcher splits its node: from our own environment,
// torchrun's or SLURM's.
#ifndef TRAINYARD_TRAINER_LAUNCH_WORLD_H_
#define TRAINYARD_TRAINER_LAUNCH_WORLD_H_

#include <optional>
#include <string>

namespace trainyard {

// No world is larger; a number above it is a mistake, not a plan.
inline constexpr int kMaxRanks = 65536;

// One rank.
struct World {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;
  int node = 0;
  std::string master_addr = "127.0.0.1";
  int master_port = 0;           // 0: any free one; only for a world of one
  bool store_is_hosted = false;  // a launcher serves the store; else rank 0 does
};

// RANK and WORLD_SIZE (trainyard launch, torchrun, a pod with one process), else SLURM_PROCID and
// SLURM_NTASKS with the first host of the node list as master and SLURM_TASKS_PER_NODE, else a world of one.
// Throws ConfigError naming a variable that is missing or wrong; MASTER_ADDR is needed by every rank
// of a larger world.
World WorldFromEnvironment();

// What one launcher starts.
struct NodeWorld {
  int node = 0, nodes = 1;
  int procs = 1;            // ranks of this node
  std::string master_addr;  // empty only on node 0
  int master_port = 0;      // 0: any free one; only with one node
};

// What the command line says of them; it wins over the environment.
struct NodeFlags {
  std::optional<int> nproc, nodes, node;
  std::string master;  // HOST or HOST:PORT, [IPV6]:PORT
};

// Ranks of a node: --nproc, else PET_NPROC_PER_NODE, else LOCAL_WORLD_SIZE, else 1. The nodes: --nnodes, else
// PET_NNODES, else WORLD_SIZE over LOCAL_WORLD_SIZE, else SLURM's. Throws ConfigError like WorldFromEnvironment, and
// where these contradict each other.
NodeWorld NodeWorldFromEnvironment(const NodeFlags& flags = {});

// The first host of SLURM's compressed node list: "node[03-05,7],b1" -> "node03". Throws ConfigError with the `name` of
// its variable for a first entry of another form, as "rack[0-1]_blade[0-2]".
std::string FirstSlurmHost(const char* name, const std::string& node_list);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_LAUNCH_WORLD_H_
