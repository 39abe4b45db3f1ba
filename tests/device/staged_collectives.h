// Collectives for the tensors of any device through the host's memory.
#ifndef TRAINYARD_TESTS_DEVICE_STAGED_COLLECTIVES_H_
#define TRAINYARD_TESTS_DEVICE_STAGED_COLLECTIVES_H_

#include <memory>

#include "trainer/comm/collectives.h"

namespace trainyard {

// Copies of the tensors go through `inner`, which is for the host's.
std::unique_ptr<Collectives> MakeStagedCollectives(std::unique_ptr<Collectives> inner);

}  // namespace trainyard

#endif  // TRAINYARD_TESTS_DEVICE_STAGED_COLLECTIVES_H_
