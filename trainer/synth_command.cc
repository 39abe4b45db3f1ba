#include "trainer/synth_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/stop_signal.h"
#include "trainer/config/load.h"

namespace trainyard {
namespace {

// What an option's field makes of the word on the command line.
nlohmann::json ValueOf(const Field& field, const std::string& word) {
  return field.type == "string" ? nlohmann::json(word) : ParseValue(word, field.path);
}

// "tiny|small|full" of a field that is one of those.
std::string ValueName(const Field& field) {
  constexpr std::string_view kOneOf = "one of ";
  if (!field.allowed.starts_with(kOneOf)) return field.type == "integer" ? "N" : "VALUE";
  std::string name;
  for (const char c : field.allowed.substr(kOneOf.size()))
    name += c == ',' ? std::string("|") : c == ' ' ? "" : std::string(1, c);
  return name;
}

constexpr const char* kOptionsFile = "synth.json";

// What is in the folder, or will be.
nlohmann::json Described(const std::string& task, const std::vector<Field>& fields, bool complete) {
  nlohmann::json options;
  for (const Field& field : fields) {
    if (field.field_class == FieldClass::kIdentity) options[field.path] = field.get();
  }
  return {{"task", task}, {"options", options}, {"complete", complete}};
}

// Whether the same data is there already, whole. A second set beside another one would be neither; one that was
// interrupted is written again. Throws ConfigError when the folder holds anything else.
bool AlreadyThere(const fs::path& out, const nlohmann::json& described) {
  std::error_code error;
  if (!fs::is_directory(out, error) || fs::is_empty(out, error)) return false;
  const fs::path file = out / kOptionsFile;
  const bool ours = fs::is_regular_file(file, error);
  const nlohmann::json there = ours ? nlohmann::json::parse(ReadFile(file), nullptr, false) : nlohmann::json();
  const bool same = there.is_object() && there.value("task", nlohmann::json()) == described["task"] &&
                    there.value("options", nlohmann::json()) == described["options"];
  if (!same)
    throw ConfigError("--out: " + out.string() + " is not empty and holds " +
                      (ours ? "data of other options (" + file.string() + ")" : "something else") +
                      "; name another folder, or remove it");
  return there.value("complete", nlohmann::json()) == true;
}

void Write(const std::string& task, const std::vector<Field>& fields, Synthesis& synthesis, const fs::path& out) {
  const std::string settings = synthesis.settings().empty() ? "" : ", " + synthesis.settings();
  const std::string use = "train on it with task.name: " + task + settings + ", data.path: " + out.string() + "\n";
  if (AlreadyThere(out, Described(task, fields, true))) {
    std::printf("%s holds this data already; %s", out.c_str(), use.c_str());
    return;
  }
  std::error_code error;
  fs::create_directories(out, error);
  if (error) throw ConfigError("--out: cannot create " + out.string() + ": " + error.message());
  const std::string interrupted =
      "\ntrainyard: stopped; what is in " + out.string() + " is not whole. The same command writes it again\n";
  EndOnStop(interrupted.c_str());
  WriteFileAtomic(out / kOptionsFile, Described(task, fields, false).dump(1) + "\n");
  synthesis.Write(out);
  WriteFileAtomic(out / kOptionsFile, Described(task, fields, true).dump(1) + "\n");
  EndOnStop("");
  std::printf("%s is written; %s", out.c_str(), use.c_str());
}

}  // namespace

SynthCommand::SynthCommand(CLI::App& synth) {
  for (const TaskEntry& task : Tasks()) {
    if (!task.synthesis) continue;
    Entry& entry = *entries_.emplace_back(std::make_unique<Entry>());
    const std::string name = task.name;
    entry.command = synth.add_subcommand(name, std::string("writes data for ") + task.summary);
    entry.command->add_option("--out", entry.out, "the folder to write")->required()->type_name("DIR");
    entry.synthesis = task.synthesis();
    FieldTable table;
    entry.synthesis->Declare(table);
    entry.fields = table.Take();
    for (const Field& field : entry.fields) {
      const nlohmann::json value = field.get();
      entry.command
          ->add_option(field.path, entry.given[field.path],
                       field.doc + (field.allowed.empty() ? "" : ": " + field.allowed))
          ->default_str(value.is_string() ? value.get<std::string>() : value.dump())
          ->type_name(ValueName(field));
    }
  }
}

void SynthCommand::Run() {
  for (const auto& entry : entries_) {
    if (!entry->command->parsed()) continue;
    try {
      for (const Field& field : entry->fields) {
        if (entry->command->count(field.path) > 0) field.set(ValueOf(field, entry->given[field.path]));
      }
    } catch (const ConfigError& error) {
      throw UsageError(error.what());
    }
    Write(entry->command->get_name(), entry->fields, *entry->synthesis, ResolveVolume(entry->out));
  }
}

}  // namespace trainyard
