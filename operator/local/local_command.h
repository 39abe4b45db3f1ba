// What `trainyard-operator local` is asked for.
#ifndef TRAINYARD_OPERATOR_LOCAL_LOCAL_COMMAND_H_
#define TRAINYARD_OPERATOR_LOCAL_LOCAL_COMMAND_H_

#include <optional>
#include <string>

namespace trainyard {

struct LocalOptions {
  std::string file;          // the TrainingJob; empty: only serve, or go on with what is in state_dir
  std::optional<int> serve;  // port of the API on 127.0.0.1; 0: any free one
  std::string listen;        // address:port of the operator's /metrics; empty: nowhere
  bool keep = false;         // go on serving when the job has ended, until Ctrl-C
  std::string state_dir;     // empty: a new temporary folder
  bool api_only = false;     // only the API: no operator, and pods stay objects
  bool quiet = false;        // no live view and no summary
};

// Runs the control plane on this machine until the job has ended. Returns the exit code: 0 Succeeded,
// lastFailure.exitCode when Failed, 64 InvalidSpec or a job that cannot run here, 69 for a port in use, 75 after
// Ctrl-C, SIGTERM or SIGHUP or when the job was deleted, 70 when something of
// ours broke. Pods get SIGTERM and their grace before it returns.
int RunLocal(const LocalOptions& options);

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_LOCAL_LOCAL_COMMAND_H_
