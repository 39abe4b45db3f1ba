// What the command line of each of our programs has: --help as manual pages, --version, `completion` and `manual`.
#ifndef TRAINYARD_COMMON_COMMAND_LINE_PROGRAM_H_
#define TRAINYARD_COMMON_COMMAND_LINE_PROGRAM_H_

#include <functional>
#include <string>

#include "common/command_line/manual.h"

namespace trainyard::cli {

struct Program {
  std::string name;
  Manuals manuals;
  std::function<std::string()> version;  // the whole text of --version
};

// Adds --help and --version. Call it before any command is added: they take --help over from `app`.
void AddFlags(CLI::App& app, const Program& program);

// What was asked for by `completion` and `manual`.
struct References {
  std::string shell, format = "text";
};

// Adds both commands, last, and their manuals.
void AddReferences(CLI::App& app, Program& program, References& references);
// The text of one of them, by its name.
std::string Reference(const CLI::App& app, const Program& program, const References& references,
                      const std::string& command);

// EX_IOERR of sysexits.h.
inline constexpr int kOutputLost = 74;
// For a command whose result is what it prints: the code that its process ends with, which is `code`, or, where
// standard output could not be written (a full disk) and `code` says success, kOutputLost. That is said on standard
// error as well.
int Printed(const std::string& program, int code);

// The manual page that a --help on the command line, which `app` has read, asks for.
std::string Help(const CLI::App& app, const Program& program);

}  // namespace trainyard::cli

#endif  // TRAINYARD_COMMON_COMMAND_LINE_PROGRAM_H_
