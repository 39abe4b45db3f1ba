#include "tests/device/far_device.h"
#include "tests/device/ranks.h"
#include "tests/device/staged_collectives.h"
#include "trainer/comm/in_process.h"

namespace trainyard {

std::vector<TestRank> MakeTestRanks(int world) {
  std::vector<TestRank> ranks;
  for (std::unique_ptr<Communicator>& communicator : MakeInProcessWorld(world)) {
    auto device = MakeFarDevice(static_cast<int>(ranks.size()));
    ranks.push_back({std::move(device), MakeStagedCollectives(std::move(communicator))});
  }
  return ranks;
}

}  // namespace trainyard
