// A program's command line as data: what its help, its reference and its completions are made of.
#ifndef TRAINYARD_COMMON_COMMAND_LINE_COMMAND_H_
#define TRAINYARD_COMMON_COMMAND_LINE_COMMAND_H_

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace trainyard::cli {

struct Option {
  std::string name;   // "--config"; of a positional one its value's name
  std::string brief;  // "-f"; mostly empty
  // The name of its value, empty for a flag. It says what may stand there: FILE and DIR are completed as such,
  // "tiny|small|full" are the words that are allowed, everything else is free.
  std::string value;
  std::string text;  // what it is for
  std::string initial;
  bool positional = false, required = false, repeats = false;

  // The words that are allowed; empty: others than these.
  std::vector<std::string> Choices() const;
};

struct Command {
  std::string name, path;  // "ls", "trainyard checkpoint ls"
  std::string summary;     // a few words
  std::vector<Option> options;
  std::vector<Command> commands;
};

// What `app` has, under the name of the program that it is.
Command Describe(const CLI::App& app, const std::string& program);

// The command and all below it, each before its own.
std::vector<const Command*> Everything(const Command& command);

}  // namespace trainyard::cli

#endif  // TRAINYARD_COMMON_COMMAND_LINE_COMMAND_H_
