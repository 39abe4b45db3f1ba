#include "trainer/config/load.h"

#include <yaml-cpp/yaml.h>

#include <charconv>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/text.h"
#include "trainer/config/fields.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

// YAML 1.2 core schema (section 10.3.2): null, booleans, integers, floats; all else is a string.
Json Scalar(const std::string& text, bool quoted) {
  if (quoted) return text;
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return nullptr;
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  const char* begin = text.data() + (text[0] == '+' ? 1 : 0);
  const char* end = text.data() + text.size();
  int64_t integer = 0;
  if (auto r = std::from_chars(begin, end, integer); r.ec == std::errc() && r.ptr == end) return integer;
  double number = 0;
  const bool numeric = text.find_first_not_of("+-.0123456789eE") == std::string::npos;
  if (auto r = std::from_chars(begin, end, number); numeric && r.ec == std::errc() && r.ptr == end) return number;
  return text;
}

std::string At(const std::string& origin, const YAML::Node& node) {
  return origin + ":" + std::to_string(node.Mark().line + 1);
}

Json ToJson(const YAML::Node& node, const std::string& origin) {
  switch (node.Type()) {
    case YAML::NodeType::Scalar:
      return Scalar(node.Scalar(), node.Tag() == "!");
    case YAML::NodeType::Sequence: {
      Json list = Json::array();
      for (const YAML::Node& item : node) list.push_back(ToJson(item, origin));
      return list;
    }
    case YAML::NodeType::Map: {
      Json object = Json::object();
      for (const auto& item : node) {
        const std::string key = item.first.Scalar();
        if (object.contains(key)) throw ConfigError(At(origin, item.first) + ": key " + key + " appears twice");
        object[key] = ToJson(item.second, origin);
      }
      return object;
    }
    default:
      return nullptr;
  }
}

Json ParseYaml(const std::string& text, const std::string& origin) {
  try {
    return ToJson(YAML::Load(text), origin);
  } catch (const YAML::Exception& error) {
    throw ConfigError(origin + ": not valid YAML: " + error.what());
  }
}

[[noreturn]] void UnknownKey(const std::string& path, const std::string& origin, std::span<const std::string> known) {
  // A section may be what was meant, too.
  std::vector<std::string> names(known.begin(), known.end());
  for (const std::string& field : known) names.push_back(field.substr(0, field.find('.')));
  const std::string nearest = NearestName(path, names);
  throw ConfigError(origin + ": unknown key " + path + (nearest.empty() ? "" : "; did you mean " + nearest + "?"));
}

// Applies the leaves of `node`; an object that is not itself a field's value is a section.
void Apply(const Json& node, const std::string& prefix, const std::string& origin, std::vector<Field>& fields,
           std::span<const std::string> known) {
  for (const auto& [key, value] : node.items()) {
    const std::string path = prefix.empty() ? key : prefix + "." + key;
    bool is_section = false;
    Field* field = nullptr;
    for (Field& candidate : fields) {
      if (candidate.path == path) field = &candidate;
      is_section |= candidate.path.starts_with(path + ".");
    }
    if (field) {
      field->set(value);
    } else if (is_section && value.is_object()) {
      Apply(value, path, origin, fields, known);
    } else if (is_section) {
      if (!value.is_null())
        throw ConfigError(path + ": " + value.dump() + " is not allowed; expected a section with keys");
    } else {
      UnknownKey(path, origin, known);
    }
  }
}

void ApplySet(const std::string& assignment, std::vector<Field>& fields, std::span<const std::string> known) {
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0)
    throw UsageError("--set " + assignment + ": expected section.key=value");
  const std::string path = assignment.substr(0, equals);
  for (Field& field : fields) {
    if (field.path != path) continue;
    field.set(ParseYaml(assignment.substr(equals + 1), "--set " + path));
    return;
  }
  UnknownKey(path, "--set", known);
}

void RequireRelations(const Config& c) {
  if (c.task.name.empty())
    throw ConfigError("task.name: missing; expected one of the names that `trainyard tasks` lists");
  if (c.train.steps.has_value() == c.train.epochs.has_value()) {
    throw ConfigError(std::string("train.steps, train.epochs: ") + (c.train.steps ? "both are" : "neither is") +
                      " set; set exactly one");
  }
  if (c.model.dim % c.model.heads != 0) {
    throw ConfigError(Format("model.dim: %lld is not a multiple of model.heads %lld",
                             static_cast<long long>(c.model.dim), static_cast<long long>(c.model.heads)));
  }
  if (c.data.path.empty())
    throw ConfigError("data.path: missing; `trainyard synth " + c.task.name + " --out DIR` writes a data set");
  if (c.schedule.name == "plateau" && c.schedule.metric.empty())
    throw ConfigError("schedule.metric: missing; plateau watches an evaluation metric");
  if (c.task.mode == "compressed" && c.model.context < 164) {
    throw ConfigError(Format(
        "model.context: %lld is not allowed; compressed mode needs at least 164 (two regions of 80 and four tokens)",
        static_cast<long long>(c.model.context)));
  }
}

void ResolvePaths(Config& c) {
  const char* environment = std::getenv("TRAINYARD_CHECKPOINT_DIR");
  const std::string root = environment ? environment : "";
  if (c.checkpoint.dir.empty()) c.checkpoint.dir = root;
  if (c.run.dir.empty()) c.run.dir = root.empty() ? "runs/" + c.task.name : root + "/run";
  for (std::string* path : {&c.data.path, &c.checkpoint.dir, &c.run.dir, &c.train.record, &c.init.from}) {
    *path = ResolveVolume(*path).string();
  }
  if (c.checkpoint.resume != "auto" && c.checkpoint.resume != "never")
    c.checkpoint.resume = ResolveVolume(c.checkpoint.resume).string();
  if (c.checkpoint.dir.empty()) c.checkpoint.dir = c.run.dir + "/checkpoints";
}

}  // namespace

Config ParseConfig(const std::string& yaml, const std::string& origin, const std::vector<std::string>& sets) {
  Config config;
  std::vector<Field> fields = Fields(config);
  std::vector<std::string> known;
  for (const Field& field : fields) known.push_back(field.path);
  const Json document = ParseYaml(yaml, origin);
  if (!document.is_object() && !document.is_null())
    throw ConfigError(origin + ": expected sections with keys, as in docs/config.md");
  if (document.is_object()) Apply(document, "", origin, fields, known);
  for (const std::string& assignment : sets) ApplySet(assignment, fields, known);
  RequireRelations(config);
  ResolvePaths(config);
  return config;
}

Config LoadConfig(const std::string& path, const std::vector<std::string>& sets) {
  std::string file = path;
  if (const char* environment = std::getenv("TRAINYARD_CONFIG"); file.empty() && environment) file = environment;
  if (file.empty()) throw UsageError("--config: missing, and TRAINYARD_CONFIG is not set");
  std::string text;
  try {
    text = ReadFile(ResolveVolume(file));
  } catch (const StorageError& error) {
    throw ConfigError(std::string("--config: ") + error.what());
  }
  return ParseConfig(text, file, sets);
}

Json ToJson(const Config& config) {
  Config copy = config;
  Json root = Json::object();
  for (const Field& field : Fields(copy)) {
    Json* node = &root;
    for (const std::string& part : Split(field.path, '.')) node = &(*node)[part];
    *node = field.get();
  }
  return root;
}

std::vector<ConfigDifference> CompareConfig(const Json& before, const Config& now) {
  Config copy = now;
  std::vector<ConfigDifference> differences;
  for (const Field& field : Fields(copy)) {
    if (field.field_class == FieldClass::kFree) continue;
    const Json* node = &before;
    for (const std::string& part : Split(field.path, '.')) {
      node = node && node->is_object() && node->contains(part) ? &(*node)[part] : nullptr;
    }
    if (!node || *node == field.get()) continue;  // A field that the writer did not know cannot differ.
    differences.push_back({field.path, node->dump(), field.get().dump(), field.field_class == FieldClass::kIdentity});
  }
  return differences;
}

std::string ConfigDocument() {
  Config defaults;
  std::string text =
      "# Configuration\n\n"
      "<!-- Generated by `trainyard config-reference`; do not edit. -->\n\n"
      "A YAML file (JSON is a subset) with the sections below. `--set section.key=value` wins over the file. Unknown "
      "keys are\n"
      "refused. On resume a changed *identity* field is refused, a changed *schedule* field is taken from the file "
      "with a\n"
      "warning, and a *free* field may change at any time.\n";
  std::string section;
  for (const Field& field : Fields(defaults)) {
    const std::string name = field.path.substr(0, field.path.find('.'));
    if (name != section) {
      section = name;
      text += "\n## " + section + "\n\n| field | type | default | class | meaning |\n|---|---|---|---|---|\n";
    }
    const std::string allowed = field.allowed.empty() ? "" : " Allowed: " + field.allowed + ".";
    text += "| `" + field.path + "` | " + field.type + " | `" + field.get().dump() + "` | " +
            NameOf(field.field_class) + " | " + field.doc + allowed + " |\n";
  }
  return text;
}

}  // namespace trainyard
