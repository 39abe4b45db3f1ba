#include "common/command_line/command.h"

#include <CLI/CLI.hpp>

namespace trainyard::cli {
namespace {

Option DescribeOption(const CLI::Option& from) {
  Option option;
  option.positional = from.get_positional();
  if (!from.get_snames().empty()) option.brief = "-" + from.get_snames().front();
  if (!from.get_lnames().empty()) option.name = "--" + from.get_lnames().front();
  if (from.get_items_expected_max() > 0) {
    const std::string value = from.get_type_name();
    option.value = value.substr(0, value.find(":INT in ["));  // CLI::Range says itself behind a name
  }
  if (option.positional) option.name = option.value;
  option.text = from.get_description();
  option.initial = from.get_default_str();
  option.required = from.get_required();
  option.repeats = from.get_items_expected_max() > 1;
  return option;
}

Command DescribeCommand(const CLI::App& app, const std::string& name, const std::string& above) {
  Command command{.name = name,
                  .path = above.empty() ? name : above + " " + name,
                  .summary = app.get_description(),
                  .options = {},
                  .commands = {}};
  for (const CLI::Option* option : app.get_options()) command.options.push_back(DescribeOption(*option));
  for (const CLI::App* below : app.get_subcommands([](const CLI::App*) { return true; }))
    command.commands.push_back(DescribeCommand(*below, below->get_name(), command.path));
  return command;
}

void Collect(const Command& command, std::vector<const Command*>& all) {
  all.push_back(&command);
  for (const Command& below : command.commands) Collect(below, all);
}

}  // namespace

std::vector<std::string> Option::Choices() const {
  std::vector<std::string> words;
  if (value.find('|') == std::string::npos) return words;
  for (size_t begin = 0; begin <= value.size();) {
    const size_t end = std::min(value.find('|', begin), value.size());
    words.push_back(value.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

Command Describe(const CLI::App& app, const std::string& program) { return DescribeCommand(app, program, ""); }

std::vector<const Command*> Everything(const Command& command) {
  std::vector<const Command*> all;
  Collect(command, all);
  return all;
}

}  // namespace trainyard::cli
