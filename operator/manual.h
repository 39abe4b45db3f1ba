// What the manual pages of `trainyard-operator` say beside the options, for the commands that every build has.
#ifndef TRAINYARD_OPERATOR_MANUAL_H_
#define TRAINYARD_OPERATOR_MANUAL_H_

#include "common/command_line/manual.h"

namespace trainyard {

inline constexpr char kOperatorProgram[] = "trainyard-operator";

cli::Manual RunManual();
cli::Manual ValidateManual();
cli::Manual CrdManual();

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_MANUAL_H_
