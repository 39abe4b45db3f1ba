// The codes that trainyard-operator ends with; a worker's own are in docs/architecture.md.
#ifndef TRAINYARD_OPERATOR_BASE_EXIT_CODES_H_
#define TRAINYARD_OPERATOR_BASE_EXIT_CODES_H_

namespace trainyard {

inline constexpr int kExitUsage = 2;
inline constexpr int kExitInvalid = 64;   // a file, flag or folder that cannot be used
inline constexpr int kExitNetwork = 69;   // a port in use
inline constexpr int kExitInternal = 70;  // something of ours broke
inline constexpr int kExitStopped = 75;   // by Ctrl-C or SIGTERM

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_BASE_EXIT_CODES_H_
