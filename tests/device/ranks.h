// The ranks of a test of the engine, in one process: compiled once for the host's memory and once for far devices.
#ifndef TRAINYARD_TESTS_DEVICE_RANKS_H_
#define TRAINYARD_TESTS_DEVICE_RANKS_H_

#include <memory>
#include <vector>

#include "trainer/device/device.h"

namespace trainyard {

struct TestRank {
  std::unique_ptr<Device> device;
  std::unique_ptr<Collectives> collectives;  // for tensors on it
};

std::vector<TestRank> MakeTestRanks(int world);

}  // namespace trainyard

#endif  // TRAINYARD_TESTS_DEVICE_RANKS_H_
