#include "trainer/train/weights_origin.h"

#include <nlohmann/json.hpp>

#include "trainer/config/load.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;
constexpr const char* kKey = "trainyard";
constexpr size_t kLongest = 65536;  // no model has as much to say; what a stranger wrote is not printed without end

}  // namespace

std::map<std::string, std::string> WeightsMetadata(const Config& config) {
  const Json identity = IdentityOf(config);
  Json said = Json::object();
  for (const char* section : {"task", "model", "data"}) {
    if (identity.contains(section)) said[section] = identity[section];
  }
  return {{"format", "pt"}, {kKey, said.dump()}};
}

OtherOrigin OtherThanInFile(const std::map<std::string, std::string>& metadata, const Config& config) {
  const auto found = metadata.find(kKey);
  if (found == metadata.end() || found->second.size() > kLongest) return {};
  const Json said = Json::parse(found->second, nullptr, false);
  const Json::json_pointer name("/task/name");
  if (!said.is_object() || !said.contains(name) || said[name] != config.task.name) return {};
  OtherOrigin other;
  for (const ConfigDifference& difference : CompareConfig(said, config)) {
    // What dropout was does not change what weights compute.
    if (!difference.identity || difference.path == "model.dropout") continue;
    const std::string text = difference.path + ": " + difference.before + " there, " + difference.after + " here";
    if (difference.path.starts_with("model.")) other.model.push_back(text);
    if (difference.path.starts_with("task.")) other.task.push_back(text);
    if (difference.path.starts_with("data.")) other.data.push_back(text);
  }
  return other;
}

}  // namespace trainyard
