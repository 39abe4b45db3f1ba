// What a manual page says of a command beside its options, and the page itself: as text for --help, as Markdown for
// docs/cli.md, and for man(1).
#ifndef TRAINYARD_COMMON_COMMAND_LINE_MANUAL_H_
#define TRAINYARD_COMMON_COMMAND_LINE_MANUAL_H_

#include <map>
#include <string>
#include <vector>

#include "common/command_line/command.h"

namespace trainyard::cli {

struct Entry {
  std::string term, text;
};

struct Manual {
  std::string description;  // paragraphs, with an empty line between two of them
  std::vector<Entry> environment, files, exit_codes;
  std::vector<Entry> examples;  // the term is what is typed
  std::vector<std::string> see_also;
};

using Manuals = std::map<std::string, Manual>;  // by Command::path

// The page of one command, 80 columns wide.
std::string HelpText(const Command& command, const Manual& manual);
// The pages of a command and all below it. Those without an entry in `manuals` have only their options.
std::string ManualMarkdown(const Command& program, const Manuals& manuals);
std::string ManualRoff(const Command& program, const Manuals& manuals, const std::string& version);

}  // namespace trainyard::cli

#endif  // TRAINYARD_COMMON_COMMAND_LINE_MANUAL_H_
