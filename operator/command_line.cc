#include "operator/command_line.h"

#include <openssl/crypto.h>
#include <openssl/opensslv.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "common/command_line/program.h"
#include "operator/api/field_error.h"
#include "operator/base/exit_codes.h"
#include "operator/manual.h"

namespace trainyard {
namespace {

// "did you mean local?", for the first word that is no subcommand or flag.
std::string Suggestion(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> known;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    known.push_back(sub->get_name());
    for (const CLI::Option* option : sub->get_options()) known.push_back(option->get_name());
  }
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (std::find(known.begin(), known.end(), word) != known.end()) continue;
    if (const std::string nearest = api::Nearest(word, known); !nearest.empty())
      return "; did you mean " + nearest + "?";
    const bool job_file = word.ends_with(".yaml") || word.ends_with(".yml") || word.ends_with(".json");
    if (job_file && i > 1 && !std::string(argv[i - 1]).starts_with("-")) return "; did you mean -f " + word + "?";
  }
  return "";
}

// "loca: no such command; allowed: run, local; did you mean local?", or CLI11's own words.
std::string Explain(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  std::string allowed;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    allowed += (allowed.empty() ? "" : ", ") + sub->get_name();
  const std::string first = argc > 1 ? argv[1] : "";
  const bool unknown = !first.empty() && !first.starts_with("-") && app.get_subcommands().empty();
  return (unknown ? first + ": no such command; allowed: " + allowed : error.what()) + Suggestion(app, argc, argv);
}

std::vector<LibraryVersion> Libraries(const CommandLine& what) {
  std::vector<LibraryVersion> all = {{"OpenSSL", OPENSSL_VERSION_STR, OpenSSL_version(OPENSSL_VERSION_STRING)}};
  all.insert(all.end(), what.libraries.begin(), what.libraries.end());
  for (LibraryVersion& library : CommonLibraries()) all.push_back(std::move(library));
  return all;
}

}  // namespace

int RunCommandLine(int argc, char** argv, const CommandLine& what) {
  CLI::App app{"runs TrainingJobs: distributed training on Kubernetes"};
  cli::Program program{.name = kOperatorProgram, .manuals = {{kOperatorProgram, what.about}}, .version = [&] {
                         return VersionText(kOperatorProgram, Libraries(what));
                       }};
  cli::AddFlags(app, program);
  app.require_subcommand(1);
  Action chosen;
  for (const AddCommand& add : what.commands) {
    AddedCommand added = add(app);
    CLI::App* command = app.get_subcommands({}).back();
    program.manuals[std::string(kOperatorProgram) + " " + command->get_name()] = std::move(added.manual);
    command->callback([&chosen, action = std::move(added.action)] { chosen = action; });
  }
  cli::References references;
  cli::AddReferences(app, program, references);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(cli::Help(app, program).c_str(), stdout);
    return cli::Printed(kOperatorProgram, 0);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return cli::Printed(kOperatorProgram, app.exit(error));  // --version
    std::fprintf(stderr, "trainyard-operator: %s\n", Explain(app, error, argc, argv).c_str());
    return kExitUsage;
  }
  if (chosen) return chosen();
  const std::string name = app.get_subcommands().front()->get_name();
  std::fputs(cli::Reference(app, program, references, name).c_str(), stdout);
  return cli::Printed(kOperatorProgram, 0);
}

}  // namespace trainyard
