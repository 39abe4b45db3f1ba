// The program's command line: which commands a build has is its main's choice.
#ifndef TRAINYARD_OPERATOR_COMMAND_LINE_H_
#define TRAINYARD_OPERATOR_COMMAND_LINE_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace trainyard {

// What a command does once its options are parsed. Returns the exit code.
using Action = std::function<int()>;
// Adds the command and its options.
using AddCommand = std::function<Action(CLI::App&)>;

// Parses, and runs the one command that was asked for. Returns its exit code, or 2 for a command line that is wrong.
int RunCommandLine(int argc, char** argv, const std::string& about, const std::vector<AddCommand>& commands);

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_COMMAND_LINE_H_
