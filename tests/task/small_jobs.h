// A job of seconds for each task in the tests' table: what must hold for all of them is tried on these.
#ifndef TRAINYARD_TESTS_TASK_SMALL_JOBS_H_
#define TRAINYARD_TESTS_TASK_SMALL_JOBS_H_

#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "trainer/config/config.h"

namespace trainyard {

struct SmallJob {
  const char* task;
  std::vector<std::string> sets;
  friend void PrintTo(const SmallJob& job, std::ostream* out) { *out << job.task; }
};

const std::vector<SmallJob>& SmallJobs();

// With dropout. Writes the task's synthetic data, if it has any, to `data`.
Config ConfigOf(const SmallJob& job, const std::filesystem::path& data);

}  // namespace trainyard

#endif  // TRAINYARD_TESTS_TASK_SMALL_JOBS_H_
