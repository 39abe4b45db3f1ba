// The commands that every build of the program has.
#ifndef TRAINYARD_OPERATOR_COMMANDS_H_
#define TRAINYARD_OPERATOR_COMMANDS_H_

#include <functional>
#include <string>
#include <vector>

#include "operator/api/job_file.h"
#include "operator/command_line.h"

namespace trainyard {

// The operator, in a cluster or with a kubeconfig.
AddedCommand AddRun(CLI::App& app);

// Lines about a job that is valid, such as what `local` ignores of it.
using Notes = std::function<std::vector<std::string>(const api::JobFile&)>;
// The checks that the operator would make, offline.
AddedCommand AddValidate(CLI::App& app, const Notes& notes);

// The CustomResourceDefinition, and docs/api.md.
AddedCommand AddCrd(CLI::App& app);

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_COMMANDS_H_
