// The real reconciler, queue, stores and reflectors against the in-memory API, with a virtual clock.
// TRAINYARD_SIM_SEEDS=first:count chooses the seeds (make test-thorough: 5,000); one that fails prints itself and its
// history.
#include "tests/sim/simulation.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace trainyard::sim {
namespace {

// Shares of the seeds, so that they run side by side.
constexpr uint64_t kShares = 8;

class SimulationTest : public testing::TestWithParam<uint64_t> {};

TEST_P(SimulationTest, EverySeedKeepsTheInvariants) {
  uint64_t first = 1, count = TRAINYARD_SIM_DEFAULT_SEEDS;
  if (const char* text = std::getenv("TRAINYARD_SIM_SEEDS")) {
    ASSERT_EQ(std::sscanf(text, "%lu:%lu", &first, &count), 2) << "TRAINYARD_SIM_SEEDS=first:count";
  }
  int failures = 0;
  for (uint64_t seed = first + GetParam(); seed < first + count && failures < 3; seed += kShares) {
    const std::string broken = Simulation(seed, false).Run();
    if (broken.empty()) continue;
    ++failures;
    Simulation again(seed, true);
    ADD_FAILURE() << "seed " << seed << " (again: TRAINYARD_SIM_SEEDS=" << seed << ":1): " << broken << "\n"
                  << (again.Run() == broken ? "" : "and not the same when it is played again\n") << again.history();
  }
}

INSTANTIATE_TEST_SUITE_P(Share, SimulationTest, testing::Range(uint64_t{0}, kShares));

}  // namespace
}  // namespace trainyard::sim
