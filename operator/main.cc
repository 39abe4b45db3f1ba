// trainyard-operator: see `trainyard-operator --help` and docs/architecture.md.
#include <cstdio>
#include <memory>

#include "operator/base/exit_codes.h"
#include "operator/commands.h"
#include "operator/local/local_command.h"
#include "operator/local/node/limits.h"

namespace trainyard {
namespace {

std::vector<std::string> WhatLocalDoes(const api::JobFile& file) {
  std::vector<std::string> notes;
  for (const std::string& obstacle : local::JobObstacles(file.job)) notes.push_back("`local` refuses " + obstacle);
  for (const std::string& other : file.others) notes.push_back("`local` ignores " + other);
  for (const std::string& field : local::IgnoredFields(file.job)) notes.push_back("`local` ignores " + field);
  return notes;
}

int Local(const LocalOptions& options) {
  if (options.file.empty() && !options.serve) {
    std::fprintf(stderr, "trainyard-operator: local: nothing to do; give -f FILE, or --serve PORT\n");
    return kExitUsage;
  }
  if (options.api_only && !options.listen.empty()) {
    std::fprintf(stderr, "trainyard-operator: local: --listen is of the operator, and with --api-only there is none\n");
    return kExitUsage;
  }
  return RunLocal(options);
}

Action AddLocal(CLI::App& app) {
  const auto options = std::make_shared<LocalOptions>();
  CLI::App* command =
      app.add_subcommand("local",
                         "the same control plane on this machine: API, operator, and pods as processes\n\nExample:\n  "
                         "trainyard-operator local -f job.yaml --serve 6443 --state-dir state");
  command->add_option("-f,--file", options->file, "a TrainingJob; - is standard input");
  command->add_option("--serve", options->serve, "port of the API on 127.0.0.1 for kubectl; 0: any free one")
      ->check(CLI::Range(0, 65535));
  command->add_option("--listen", options->listen, "address:port of the operator's /metrics, /healthz and /readyz");
  command->add_flag("--keep", options->keep, "go on serving after the job's end, until Ctrl-C");
  command
      ->add_option(
          "--state-dir", options->state_dir,
          "where objects, logs and claims lie; the next start with it goes on. Default: a new temporary folder")
      ->check([](const std::string& path) { return path.empty() ? "a folder's name is needed" : ""; });
  command->add_flag("--api-only", options->api_only,
                    "only the API: no operator, and pods stay objects; for tests of clients");
  command->add_flag("--quiet", options->quiet, "no live view and no summary");
  return [options] { return Local(*options); };
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  using namespace trainyard;
  return RunCommandLine(argc, argv,
                        "Runs TrainingJobs: distributed training on Kubernetes, or on this machine alone.\n\n"
                        "Example:\n  trainyard-operator local -f manifests/examples/dark-room.yaml",
                        {AddRun, AddLocal, [](CLI::App& app) { return AddValidate(app, WhatLocalDoes); }, AddCrd});
}
