#include "operator/command_line.h"

#include <algorithm>
#include <cstdio>

#include "operator/api/field_error.h"
#include "operator/base/exit_codes.h"
#include "operator/base/version.h"

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

}  // namespace

int RunCommandLine(int argc, char** argv, const std::string& about, const std::vector<AddCommand>& commands) {
  CLI::App app{about};
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("trainyard-operator ") + kOperatorVersion);
  Action chosen;
  for (const AddCommand& add : commands) {
    const Action action = add(app);
    app.get_subcommands({}).back()->callback([&chosen, action] { chosen = action; });
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    std::fprintf(stderr, "trainyard-operator: %s\n", Explain(app, error, argc, argv).c_str());
    return kExitUsage;
  }
  return chosen();
}

}  // namespace trainyard
