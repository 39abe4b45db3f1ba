// Configurations from files, from --set, and back.
#ifndef TRAINYARD_TRAINER_CONFIG_LOAD_H_
#define TRAINYARD_TRAINER_CONFIG_LOAD_H_

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "trainer/config/config.h"

namespace trainyard {

// Where a run's things lie, after environment, defaults and volumes have been applied.
//
// `path` is a YAML (or JSON) file; empty means TRAINYARD_CONFIG. `sets` are "a.b=value" with
// YAML values and win over the file. `tasks` are those that task.name may name; the fields are the
// common ones and that task's. Relations between fields are checked.
// Throws ConfigError for an unreadable file, and for unknown keys (naming the nearest known ones), wrong types and
// values outside their limits, each on a line of its own; UsageError when no file is named.
Config LoadConfig(const std::string& path, const std::vector<std::string>& sets,
                  std::span<const TaskDeclaration> tasks);

// The same from text; `origin` names it in messages.
Config ParseConfig(const std::string& yaml, const std::string& origin, const std::vector<std::string>& sets,
                   std::span<const TaskDeclaration> tasks);

// A value as --set takes it; `origin` names it in messages. Throws ConfigError.
nlohmann::json ParseValue(const std::string& yaml, const std::string& origin);

// Nested objects in the file's layout; reading it back gives the same configuration.
nlohmann::json ToJson(const Config& config);

// Of that the identity fields: what a run is told apart by. No path and no place is among them.
nlohmann::json IdentityOf(const Config& config);

struct ConfigDifference {
  std::string path;
  std::string before, after;  // as JSON; behind an auto what it stands for in `now`: "auto" (64)
  bool identity;              // else schedule; free fields are not compared
};

// What differs between a configuration written by ToJson (by this or another version) and `now`. An auto and the value
// that it stands for are the same.
std::vector<ConfigDifference> CompareConfig(const nlohmann::json& before, const Config& now);

// What differs between rank 0's configuration, written by ToJson, and that of another rank of its run. Free fields are
// compared as well, but for where things lie and how a rank reads: those may be a node's own.
std::vector<ConfigDifference> CompareRanks(const nlohmann::json& first, const Config& mine);

// docs/config.md: the common fields, then each task's.
std::string ConfigDocument(std::span<const TaskDeclaration> tasks);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_CONFIG_LOAD_H_
