// The program's command line: which commands a build has is its main's choice.
#ifndef TRAINYARD_OPERATOR_COMMAND_LINE_H_
#define TRAINYARD_OPERATOR_COMMAND_LINE_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <vector>

#include "common/build_info.h"
#include "common/command_line/manual.h"

namespace trainyard {

// What a command does once its options are parsed. Returns the exit code.
using Action = std::function<int()>;

// A command with its options and its manual page; added behind the other ones.
struct AddedCommand {
  Action action;
  cli::Manual manual;
};
using AddCommand = std::function<AddedCommand(CLI::App&)>;

// What a build of the program is.
struct CommandLine {
  cli::Manual about;
  std::vector<LibraryVersion> libraries;  // for --version, beside those of every build
  std::vector<AddCommand> commands;
};

// Parses, and runs the one command that was asked for. Returns its exit code, or 2 for a command line that is wrong.
int RunCommandLine(int argc, char** argv, const CommandLine& what);

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_COMMAND_LINE_H_
