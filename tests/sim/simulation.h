// One run: jobs, a cluster, people, one or two operators, and trouble that ends at some moment. A function of its
// seed.
#ifndef TRAINYARD_TESTS_SIM_SIMULATION_H_
#define TRAINYARD_TESTS_SIM_SIMULATION_H_

#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/sim/cluster.h"
#include "tests/sim/invariants.h"
#include "tests/sim/oracle.h"
#include "tests/sim/reports.h"

namespace trainyard::sim {

// What a seed chooses first.
struct Scenario {
  explicit Scenario(Dice& dice);

  size_t operators = 1;
  bool one_leads = false;  // of two; else both believe that they do
  int64_t jobs = 1;
  bool large = false;  // a job of 64 workers
  bool failures = false, disruptions = false, people = false, quota = false;
  bool doomed = false;  // its jobs have a bug, or fail until the limits end them
  Cluster::Options cluster;
  double interleave = 0.3;
};

class Simulation {
 public:
  // `trace`: keep a history of everything, for a person.
  Simulation(uint64_t seed, bool trace);

  // Empty when every invariant held and all jobs came to their end; else what broke.
  std::string Run();
  std::string history() const { return history_.str(); }

 private:
  static constexpr double kPutOffSeconds = 200;
  static constexpr int kTroubledSteps = 500, kCalmSteps = 12000, kCleaningSteps = 5000, kRestSteps = 300;

  void StartOperator(size_t i);
  void CreateJob(const std::string& name);
  Image RollImage();
  Json Spec(int64_t workers);
  void Act();
  void ActOf(size_t i);
  void Meddle();
  void Edit(const std::string& name, const Json& spec);
  void DeleteJob(const std::string& name);
  void DeleteOrphans();
  void HarmOnePod();
  void Calm();
  bool AllEnded() const;
  std::string CheckEnd();
  std::string CheckWhatIsLeft() const;
  int64_t Writes() const;
  std::string Phases() const;
  void Note(const std::string& text);
  void Trace();

  Dice dice_;
  const Scenario scenario_;
  VirtualClock clock_;
  Trouble trouble_;
  local::MemoryApi api_;
  Mirror mirror_;
  Training training_;
  Reports reports_;
  Cluster cluster_;
  Invariants invariants_;
  Oracle oracle_;
  std::vector<std::unique_ptr<OperatorProcess>> operators_;
  size_t leader_ = 0;
  int started_ = 0;  // operator processes so far
  bool calm_ = false;
  const bool trace_;
  std::ostringstream history_;
};

}  // namespace trainyard::sim

#endif  // TRAINYARD_TESTS_SIM_SIMULATION_H_
