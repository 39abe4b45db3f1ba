// What several processes check together: sums, rates of the collectives, and that each stage trains to the same bits.
#ifndef TRAINYARD_TRAINER_SELFTEST_GROUP_H_
#define TRAINYARD_TRAINER_SELFTEST_GROUP_H_

#include <string>

#include "trainer/selftest/finding.h"

namespace trainyard::selftest {

// `size` processes over Gloo on `address`. What goes wrong is a finding. REQUIRES: no thread was started yet (it
// forks).
Findings CheckGroup(int size, const std::string& address, const Announce& announce);

// Announcements of one CheckGroup, at most.
int GroupSteps();

}  // namespace trainyard::selftest

#endif  // TRAINYARD_TRAINER_SELFTEST_GROUP_H_
