// One rank's failure is every rank's, and all of them know its cause.
#ifndef TRAINYARD_TRAINER_COMM_FAIL_TOGETHER_H_
#define TRAINYARD_TRAINER_COMM_FAIL_TOGETHER_H_

#include <exception>
#include <string>

#include "trainer/comm/control_plane.h"

namespace trainyard {

// Every rank calls it, with its error or null. Returns when no rank has one. Otherwise a rank that has one throws it,
// also when nobody is left to hear of it, and the others throw ToldError: "rank 1 failed in <what>: ...", of the first
// rank that did.
void FailTogether(ControlPlane& control, const std::exception_ptr& error, const std::string& what);

// After a failure: whether the other ranks live, and know of it or will soon.
bool EveryoneLives(const std::exception_ptr& error);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_COMM_FAIL_TOGETHER_H_
