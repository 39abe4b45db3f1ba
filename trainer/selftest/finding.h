// What a check of the selftest has found.
#ifndef TRAINYARD_TRAINER_SELFTEST_FINDING_H_
#define TRAINYARD_TRAINER_SELFTEST_FINDING_H_

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace trainyard::selftest {

struct Finding {
  std::string check;  // stable, for scripts: "communication", "bandwidth", "equality", "storage"
  bool good = true;
  std::string text;                                           // a line for people
  nlohmann::ordered_json numbers = nlohmann::ordered_json();  // an object, or null
};
using Findings = std::vector<Finding>;

// Called with what comes next, before it begins.
using Announce = std::function<void(const std::string& what)>;

}  // namespace trainyard::selftest

#endif  // TRAINYARD_TRAINER_SELFTEST_FINDING_H_
