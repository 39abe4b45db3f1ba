// trainyard-operator as an image has it: without `local`, and so without what makes processes, namespaces and mounts.
#include "operator/commands.h"

int main(int argc, char** argv) {
  using namespace trainyard;
  const auto no_notes = [](const api::JobFile&) { return std::vector<std::string>(); };
  const cli::Manual about{
      .description = "The operator for Kubernetes, and its checks without a cluster.",
      .environment = {},
      .files = {},
      .exit_codes = {},
      .examples = {{"trainyard-operator run --leader-elect --listen 0.0.0.0:8080", "As a cluster runs it"}},
      .see_also = {"docs/cli.md", "docs/architecture.md"}};
  return RunCommandLine(argc, argv,
                        {.about = about,
                         .libraries = {},
                         .commands = {AddRun, [&](CLI::App& app) { return AddValidate(app, no_notes); }, AddCrd}});
}
