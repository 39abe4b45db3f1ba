// Scripts with which shells complete a program's command line. They are made of the commands and options alone, and ask
// the program nothing when they run.
#ifndef TRAINYARD_COMMON_COMMAND_LINE_COMPLETION_H_
#define TRAINYARD_COMMON_COMMAND_LINE_COMPLETION_H_

#include <string>

#include "common/command_line/command.h"

namespace trainyard::cli {

std::string BashCompletion(const Command& program);
std::string ZshCompletion(const Command& program);
std::string FishCompletion(const Command& program);

}  // namespace trainyard::cli

#endif  // TRAINYARD_COMMON_COMMAND_LINE_COMPLETION_H_
