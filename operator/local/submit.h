// How the job of a file gets into the API of this machine, which may have it from an earlier run.
#ifndef TRAINYARD_OPERATOR_LOCAL_SUBMIT_H_
#define TRAINYARD_OPERATOR_LOCAL_SUBMIT_H_

#include <functional>
#include <optional>
#include <string>

#include "operator/api/training_job.h"
#include "operator/local/api/memory_api.h"

namespace trainyard::local {

// The job as an API has it; without a uid when it is not there.
api::TrainingJob SavedJob(MemoryApi& api, const std::string& ns, const std::string& name);

// 0 when it succeeded, the culprit's (1 for one that no process ends with) when it failed, 64 when the spec is refused;
// nothing while it runs, whatever its spec has been made since.
std::optional<int> ExitCode(const api::TrainingJob& job);

struct SubmitOptions {
  std::function<void(const std::string&)> say;  // a line for whoever looks
  std::function<bool()> stopped;                // ends the wait for a suspension
  bool operated = true;                         // whether an operator runs, which alone suspends a job
};

// Creates `job`, which has a name and a namespace, or goes on with the one of an earlier run:
//  - one that succeeded, with the same spec, stays as it is, and nothing runs;
//  - one that ended otherwise, or with another spec, is deleted and made anew; its claims stay;
//  - one that goes on gets the spec that the file has now, by way of a suspension where the API asks for one.
// A refused spec changes nothing. kInvalid, or what the API said; kUnavailable when it was not suspended in time.
Status Submit(MemoryApi& api, const Json& job, const SubmitOptions& options);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_SUBMIT_H_
