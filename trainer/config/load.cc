#include "trainer/config/load.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "common/yaml.h"
#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/text.h"
#include "trainer/base/utf8.h"
#include "trainer/config/fields.h"
#include "trainer/config/mistakes.h"
#include "trainer/config/relations.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

// What a file says to the parts of a configuration.
struct Target {
  std::vector<Field> fields;
  std::vector<std::string> known;  // their paths
  bool task_known;
  std::map<std::string, Origin> origins = {};  // of those that were set
  Mistakes mistakes = {};                      // in what was said to them
};

[[noreturn]] void MissingTask() {
  throw ConfigError("task.name: missing; expected one of the names that `trainyard tasks` lists");
}

// "train.batch_size": a word of the key is a section, whose fields may be what was meant.
std::string FieldsOfASectionIn(const std::string& path, const Target& target) {
  std::string text = path;
  std::replace(text.begin(), text.end(), '.', '_');
  std::vector<std::string> words = Split(text, '_');
  std::reverse(words.begin(), words.end());  // the section that was named says least
  for (const std::string& word : words) {
    std::vector<std::string> fields;
    for (const std::string& known : target.known) {
      if (known.starts_with(word + ".")) fields.push_back(known);
    }
    if (!fields.empty()) return "; the fields of " + word + " are " + Join(fields);
  }
  return "";
}

// Of another section: "train.lr". Empty when there is none, or more than one.
std::string FieldOfTheSameName(const std::string& path, const Target& target) {
  const size_t dot = path.rfind('.');
  std::string found;
  for (const std::string& known : target.known) {
    if (dot == std::string::npos || !known.ends_with(path.substr(dot))) continue;
    if (!found.empty()) return "";
    found = known;
  }
  return found;
}

[[noreturn]] void UnknownKey(const std::string& path, const std::string& origin, const Target& target) {
  const std::string section = path.substr(0, path.find('.'));
  if (!target.task_known && (section == "task" || section == "model" || section == "data")) MissingTask();
  // A section may be what was meant, too.
  std::vector<std::string> names = target.known;
  for (const std::string& field : target.known) names.push_back(field.substr(0, field.find('.')));
  const std::string same = FieldOfTheSameName(path, target), nearest = same.empty() ? NearestName(path, names) : same;
  // Within a section that is there, a short key is near to any other: a slip leaves at least the first letter.
  const size_t key = section.size() + 1;
  const bool slip =
      !same.empty() || !nearest.starts_with(section + ".") || (path.size() > key && nearest[key] == path[key]);
  if (!nearest.empty() && slip) throw ConfigError(origin + ": unknown key " + path + "; did you mean " + nearest + "?");
  throw ConfigError(origin + ": unknown key " + path + FieldsOfASectionIn(path, target));
}

constexpr char kSetOrigin[] = "--set";

// What the file or --set says about one field or section.
struct Assignment {
  std::string path;
  Json value;
  std::string origin;
};

// An object that is not itself a field's value is a section: its leaves are applied.
void Apply(const Assignment& given, Target& target) {
  bool is_section = given.path == "model";  // whose fields are all the task's
  for (const Field& field : target.fields) {
    if (field.path == given.path) {
      target.mistakes.Note([&] { field.set(given.value); });
      target.origins[given.path] = given.origin == kSetOrigin ? Origin::kCommandLine : Origin::kFile;
      return;
    }
    is_section |= field.path.starts_with(given.path + ".");
  }
  if (!is_section) return target.mistakes.Note([&] { UnknownKey(given.path, given.origin, target); });
  if (given.value.is_null()) return;
  if (!given.value.is_object())
    return target.mistakes.Note([&] { RefuseValue(given.path, given.value, "a section with keys"); });
  for (const auto& [key, value] : given.value.items()) Apply({given.path + "." + key, value, given.origin}, target);
}

Assignment ParseSet(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) throw UsageError("--set " + text + ": expected section.key=value");
  const std::string path = text.substr(0, equals);
  return {path, ParseValue(text.substr(equals + 1), "--set " + path), kSetOrigin};
}

// The options of the task that the last assignment of task.name names; null without one.
std::shared_ptr<TaskOptions> OptionsOfTask(std::span<const Assignment> assignments,
                                           std::span<const TaskDeclaration> tasks) {
  std::string name;
  std::vector<std::string> there, later;
  for (const TaskDeclaration& task : tasks) (task.options ? there : later).push_back(task.name);
  FieldTable table;
  table.Choice("task.name", name, there, FieldClass::kIdentity, "", later);
  for (const Assignment& given : assignments) {
    if (given.path == "task.name") table.fields()[0].set(given.value);
    if (given.path == "task" && given.value.is_object() && given.value.contains("name"))
      table.fields()[0].set(given.value["name"]);
  }
  for (const TaskDeclaration& task : tasks) {
    if (name == task.name) return task.options();
  }
  return nullptr;
}

// A file or a pipe, as far as the reader of YAML would take it: some never end.
std::string ReadBounded(const fs::path& path) {
  const size_t limit = YamlLimits{}.bytes + 1;
  std::string text(limit, '\0');
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ssize_t got = fd < 0 ? -1 : 1;
  size_t size = 0;
  while (got > 0 && size < limit) {
    got = read(fd, text.data() + size, limit - size);
    if (got < 0 && errno == EINTR)
      got = 1;
    else if (got > 0)
      size += static_cast<size_t>(got);
  }
  const int error = errno;
  if (fd >= 0) close(fd);
  if (got < 0) throw ConfigError("--config: cannot read " + path.string() + ": " + std::strerror(error));
  text.resize(size);
  return text;
}

std::string Heading(const std::string& title, const std::string& text) {
  return "\n## " + title + "\n\n" + (text.empty() ? "" : text + ".\n\n") +
         "| field | type | default | class | meaning |\n|---|---|---|---|---|\n";
}

std::string Row(const Field& field) {
  const std::string allowed = field.allowed.empty() ? "" : " Allowed: " + field.allowed + ".";
  return "| `" + field.path + "` | " + field.type + " | `" + field.get().dump() + "` | " + NameOf(field.field_class) +
         " | " + field.doc + allowed + " |\n";
}

// Where checkpoints lie unless something sets it. It goes into config.json, into manifests and to the other ranks.
std::string CheckpointRoot() {
  constexpr const char* kVariable = "TRAINYARD_CHECKPOINT_DIR";
  const char* environment = std::getenv(kVariable);
  std::string root = environment ? environment : "";
  if (const std::string valid = ValidUtf8(root); valid != root)
    throw ConfigError(std::string(kVariable) + ": " + valid + " is not UTF-8 text; name a folder whose path is");
  return root;
}

void ResolvePaths(Config& c) {
  const std::string root = c.checkpoint.dir.empty() || c.run.dir.empty() ? CheckpointRoot() : "";
  if (c.checkpoint.dir.empty()) c.checkpoint.dir = root;
  if (c.run.dir.empty()) c.run.dir = root.empty() ? "runs/" + c.task.name : root + "/run";
  const auto resolve = [](const char* field, std::string& path) {
    try {
      path = ResolveVolume(path).string();
    } catch (const ConfigError& error) {
      throw ConfigError(std::string(field) + ": " + error.what());
    }
  };
  resolve("data.path", c.data.path);
  resolve("checkpoint.dir", c.checkpoint.dir);
  resolve("run.dir", c.run.dir);
  resolve("train.record", c.train.record);
  resolve("init.from", c.init.from);
  if (c.checkpoint.resume != "auto" && c.checkpoint.resume != "never")
    resolve("checkpoint.resume", c.checkpoint.resume);
  if (c.checkpoint.dir.empty()) c.checkpoint.dir = c.run.dir + "/checkpoints";
}

}  // namespace

Json ParseValue(const std::string& yaml, const std::string& origin) {
  auto read = ReadYaml(yaml);
  if (const auto* error = std::get_if<YamlError>(&read)) throw ConfigError(error->In(origin));
  return std::move(std::get<Json>(read));
}

Config ParseConfig(const std::string& yaml, const std::string& origin, const std::vector<std::string>& sets,
                   std::span<const TaskDeclaration> tasks) {
  const Json document = ParseValue(yaml, origin);
  if (!document.is_object() && !document.is_null())
    throw ConfigError(origin + ": expected sections with keys, as in docs/config.md");
  std::vector<Assignment> assignments;
  for (const auto& [key, value] : document.items()) assignments.push_back({key, value, origin});
  for (const std::string& text : sets) assignments.push_back(ParseSet(text));
  Config config;
  config.task.options = OptionsOfTask(assignments, tasks);
  Target target{Fields(config), {}, config.task.options != nullptr};
  for (const Field& field : target.fields) target.known.push_back(field.path);
  for (const Assignment& given : assignments) Apply(given, target);
  if (!config.task.options) target.mistakes.Note(MissingTask);
  target.mistakes.Throw();
  config.origins = target.origins;
  CheckRelations(config);
  ResolvePaths(config);
  return config;
}

Config LoadConfig(const std::string& path, const std::vector<std::string>& sets,
                  std::span<const TaskDeclaration> tasks) {
  std::string file = path;
  if (const char* environment = std::getenv("TRAINYARD_CONFIG"); file.empty() && environment) file = environment;
  if (file.empty()) throw UsageError("--config: missing, and TRAINYARD_CONFIG is not set");
  return ParseConfig(ReadBounded(ResolveVolume(file)), file, sets, tasks);
}

namespace {

Json ToJson(const Config& config, const std::function<bool(const Field&)>& counts) {
  Config copy = config;  // Fields takes what it may change
  Json root = Json::object();
  for (const Field& field : Fields(copy)) {
    if (!counts(field)) continue;
    Json* node = &root;
    for (const std::string& part : Split(field.path, '.')) node = &(*node)[part];
    *node = field.get();
  }
  return root;
}

}  // namespace

Json ToJson(const Config& config) {
  return ToJson(config, [](const Field&) { return true; });
}

Json IdentityOf(const Config& config) {
  return ToJson(config, [](const Field& field) { return field.field_class == FieldClass::kIdentity; });
}

namespace {

Json Meant(const Field& field, const Json& value) { return field.auto_is && value == "auto" ? field.auto_is() : value; }

std::string Shown(const Field& field, const Json& value) {
  const Json meant = Meant(field, value);
  return meant == value ? value.dump() : value.dump() + " (" + meant.dump() + ")";
}

// Where things lie, and how a rank reads: another node may have them elsewhere.
bool IsOfOneRank(const Field& field) {
  static const std::set<std::string> names = {"data.path", "data.workers",   "data.prefetch",     "train.record",
                                              "run.dir",   "checkpoint.dir", "checkpoint.resume", "init.from"};
  return names.contains(field.path);
}

// Of those, the ones that may be left out: whether they are decides what all ranks do together.
bool MayBeLeftOut(const std::string& path) { return path == "train.record" || path == "init.from"; }

std::vector<ConfigDifference> Compare(const Json& before, const Config& now,
                                      const std::function<bool(const Field&)>& counts) {
  Config copy = now;
  std::vector<ConfigDifference> differences;
  for (const Field& field : Fields(copy)) {
    if (!counts(field)) continue;
    const Json* node = &before;
    for (const std::string& part : Split(field.path, '.')) {
      node = node && node->is_object() && node->contains(part) ? &(*node)[part] : nullptr;
    }
    if (!node) continue;  // A field that the writer did not know cannot differ.
    const Json after = field.get();
    if (Meant(field, *node) == Meant(field, after)) continue;
    differences.push_back(
        {field.path, Shown(field, *node), Shown(field, after), field.field_class == FieldClass::kIdentity});
  }
  return differences;
}

}  // namespace

std::vector<ConfigDifference> CompareConfig(const Json& before, const Config& now) {
  return Compare(before, now, [](const Field& field) { return field.field_class != FieldClass::kFree; });
}

std::vector<ConfigDifference> CompareRanks(const Json& first, const Config& mine) {
  std::vector<ConfigDifference> differences =
      Compare(first, mine, [](const Field& field) { return !IsOfOneRank(field) || MayBeLeftOut(field.path); });
  const std::string nothing = Json().dump();
  std::erase_if(differences, [&](const ConfigDifference& difference) {
    return MayBeLeftOut(difference.path) && difference.before != nothing && difference.after != nothing;
  });
  return differences;
}

std::string ConfigDocument(std::span<const TaskDeclaration> tasks) {
  Config defaults;
  std::string text =
      "# Configuration\n\n"
      "<!-- Generated by `trainyard config-reference`; do not edit. -->\n\n"
      "A YAML file (JSON is a subset) with the sections below. `--set section.key=value` wins over the file. Unknown "
      "keys are\n"
      "refused. On resume a changed *identity* field is refused, a changed *schedule* field is taken from the file "
      "with a\n"
      "warning, and a *free* field may change at any time. An auto and the value that it stands for are the same. The "
      "fields that\n"
      "only one task has are at the end. Mistakes in fields are told together, the first ten of them, and without any "
      "those of fields that do not go together. A path is taken as it "
      "stands: one that begins with ~, which only a shell "
      "knows, "
      "is refused.\n";
  std::string section;
  for (const Field& field : Fields(defaults)) {
    const std::string name = field.path.substr(0, field.path.find('.'));
    if (name != section) text += Heading(name, "");
    section = name;
    text += Row(field);
  }
  for (const TaskDeclaration& task : tasks) {
    if (!task.options) continue;
    text += Heading(std::string("Task ") + task.name, task.summary);
    const std::shared_ptr<TaskOptions> options = task.options();
    for (const Field& field : TaskFields(*options)) text += Row(field);
  }
  return text;
}

}  // namespace trainyard
