#include "tests/device/ranks.h"
#include "trainer/comm/in_process.h"
#include "trainer/device/host_device.h"

namespace trainyard {

std::vector<TestRank> MakeTestRanks(int world) {
  std::vector<TestRank> ranks;
  for (std::unique_ptr<Communicator>& communicator : MakeInProcessWorld(world))
    ranks.push_back({MakeHostDevice(), std::move(communicator)});
  return ranks;
}

}  // namespace trainyard
