// The environment of a worker pod: the only place that spells these names. The operator sets them,
// the trainer reads them, and a TrainingJob's template may not.
#ifndef TRAINYARD_OPERATOR_API_WORKER_ENV_H_
#define TRAINYARD_OPERATOR_API_WORKER_ENV_H_

namespace trainyard::env {

// torchrun's names, with its meaning.
inline constexpr char kMasterAddr[] = "MASTER_ADDR";
inline constexpr char kMasterPort[] = "MASTER_PORT";
inline constexpr char kRank[] = "RANK";
inline constexpr char kLocalRank[] = "LOCAL_RANK";
inline constexpr char kWorldSize[] = "WORLD_SIZE";
inline constexpr char kLocalWorldSize[] = "LOCAL_WORLD_SIZE";
inline constexpr char kGroupRank[] = "GROUP_RANK";
inline constexpr char kUseAgentStore[] = "TORCHELASTIC_USE_AGENT_STORE";
inline constexpr char kPetNodes[] = "PET_NNODES";
inline constexpr char kPetProcsPerNode[] = "PET_NPROC_PER_NODE";
inline constexpr char kPetNodeRank[] = "PET_NODE_RANK";
inline constexpr char kPetMasterAddr[] = "PET_MASTER_ADDR";
inline constexpr char kPetMasterPort[] = "PET_MASTER_PORT";
inline constexpr char kPetRendezvousBackend[] = "PET_RDZV_BACKEND";
inline constexpr char kPetMaxRestarts[] = "PET_MAX_RESTARTS";

inline constexpr char kJob[] = "TRAINYARD_JOB";
inline constexpr char kNamespace[] = "TRAINYARD_NAMESPACE";
inline constexpr char kJobUid[] = "TRAINYARD_JOB_UID";
inline constexpr char kAttempt[] = "TRAINYARD_ATTEMPT";
inline constexpr char kConfig[] = "TRAINYARD_CONFIG";
inline constexpr char kCheckpointDir[] = "TRAINYARD_CHECKPOINT_DIR";
inline constexpr char kGraceSeconds[] = "TRAINYARD_GRACE_SECONDS";
inline constexpr char kStatusPort[] = "TRAINYARD_STATUS_PORT";
inline constexpr char kPodIp[] = "TRAINYARD_POD_IP";
inline constexpr char kTerminationLog[] = "TRAINYARD_TERMINATION_LOG";
inline constexpr char kVolumes[] = "TRAINYARD_VOLUMES";

}  // namespace trainyard::env

#endif  // TRAINYARD_OPERATOR_API_WORKER_ENV_H_
