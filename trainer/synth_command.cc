#include "trainer/synth_command.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/config/load.h"

namespace trainyard {
namespace {

// What an option's field makes of the word on the command line.
nlohmann::json ValueOf(const Field& field, const std::string& word) {
  return field.type == "string" ? nlohmann::json(word) : ParseValue(word, field.path);
}

}  // namespace

SynthCommand::SynthCommand(CLI::App& synth) {
  for (const TaskEntry& task : Tasks()) {
    if (!task.synthesis) continue;
    Entry& entry = *entries_.emplace_back(std::make_unique<Entry>());
    const std::string name = task.name;
    entry.command =
        synth.add_subcommand(name, std::string("Data for ") + task.summary + ".\n\nExample:\n  trainyard synth " +
                                       name + " --out data/" + name + " --seed 1");
    entry.command->add_option("--out", entry.out, "the folder to write")->required();
    entry.synthesis = task.synthesis();
    FieldTable table;
    entry.synthesis->Declare(table);
    entry.fields = table.Take();
    for (const Field& field : entry.fields) {
      const nlohmann::json value = field.get();
      entry.command
          ->add_option(field.path, entry.given[field.path],
                       field.doc + (field.allowed.empty() ? "" : ": " + field.allowed))
          ->default_str(value.is_string() ? value.get<std::string>() : value.dump());
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
    entry->synthesis->Write(ResolveVolume(entry->out));
  }
}

}  // namespace trainyard
