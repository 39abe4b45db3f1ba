// trainyard-operator: see `trainyard-operator --help` and docs/architecture.md.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>

#include "operator/api/crd.h"
#include "operator/api/field_error.h"
#include "operator/api/job_file.h"
#include "operator/base/exit_codes.h"
#include "operator/config_check.h"
#include "operator/local/limits.h"
#include "operator/local/local_command.h"
#include "operator/run_command.h"

namespace trainyard {
namespace {

int Validate(const std::string& file) {
  const Result<api::JobFile> read = api::ReadJobFile(file);
  if (!read.ok()) {
    std::fprintf(stderr, "trainyard-operator: %s\n", read.status().message().c_str());
    return kExitInvalid;
  }
  const std::vector<std::string> problems = api::CheckJob(read->job);
  for (const std::string& problem : problems) std::fprintf(stderr, "%s: %s\n", file.c_str(), problem.c_str());
  if (!problems.empty()) return kExitInvalid;
  const ConfigVerdict config = CheckConfig(read->job);
  if (!config.problem.empty()) {
    std::fprintf(stderr, "%s: %s\n", file.c_str(), config.problem.c_str());
    return kExitInvalid;
  }
  std::printf("%s: valid\n", file.c_str());
  if (!config.unchecked.empty()) std::printf("  %s\n", config.unchecked.c_str());
  for (const std::string& obstacle : local::JobObstacles(read->job))
    std::printf("  `local` refuses %s\n", obstacle.c_str());
  for (const std::string& other : read->others) std::printf("  `local` ignores %s\n", other.c_str());
  for (const std::string& field : local::IgnoredFields(read->job)) std::printf("  `local` ignores %s\n", field.c_str());
  return 0;
}

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

int Main(int argc, char** argv) {
  CLI::App app{
      "Runs TrainingJobs: distributed training on Kubernetes, or on this machine alone.\n\n"
      "Example:\n  trainyard-operator local -f manifests/examples/dark-room.yaml"};
  app.require_subcommand(1);
  app.set_version_flag("--version", "trainyard-operator 0.1.0");

  RunOptions run;
  CLI::App* run_command = app.add_subcommand("run",
                                             "the operator, in a cluster or with --kubeconfig\n\nExample:\n  "
                                             "trainyard-operator run --kubeconfig ~/.kube/config --namespace research");
  run_command->add_option("--kubeconfig", run.kubeconfig, "a kubeconfig file; without it, the pod's service account");
  run_command->add_option("--namespace", run.ns, "watch only this namespace");
  run_command->add_option("--listen", run.listen, "address:port of /metrics, /healthz and /readyz")
      ->capture_default_str();
  run_command->add_flag("--leader-elect", run.leader_elect,
                        "of several operators let one work, the holder of a Lease; the others stand by");
  run_command->add_option("--lease-name", run.lease_name, "the Lease's name")->capture_default_str();
  run_command->add_option("--lease-namespace", run.lease_namespace, "its namespace; without it, the pod's own");

  LocalOptions local;
  CLI::App* local_command =
      app.add_subcommand("local",
                         "the same control plane on this machine: API, operator, and pods as processes\n\nExample:\n  "
                         "trainyard-operator local -f job.yaml --serve 6443 --state-dir state");
  local_command->add_option("-f,--file", local.file, "a TrainingJob; - is standard input");
  local_command->add_option("--serve", local.serve, "port of the API on 127.0.0.1 for kubectl; 0: any free one")
      ->check(CLI::Range(0, 65535));
  local_command->add_flag("--keep", local.keep, "go on serving after the job's end, until Ctrl-C");
  local_command
      ->add_option(
          "--state-dir", local.state_dir,
          "where objects, logs and claims lie; the next start with it goes on. Default: a new temporary folder")
      ->check([](const std::string& path) { return path.empty() ? "a folder's name is needed" : ""; });
  local_command->add_flag("--api-only", local.api_only,
                          "only the API: no operator, and pods stay objects; for tests of clients");
  local_command->add_flag("--quiet", local.quiet, "no live view and no summary");

  std::string file;
  CLI::App* validate = app.add_subcommand(
      "validate",
      "the checks that the operator would make, offline\n\nExample:\n  trainyard-operator validate -f job.yaml");
  validate->add_option("-f,--file", file, "a TrainingJob; - is standard input")->required();

  bool reference = false;
  CLI::App* crd = app.add_subcommand(
      "crd", "prints the CustomResourceDefinition\n\nExample:\n  trainyard-operator crd | kubectl apply -f -");
  crd->add_flag("--reference", reference, "print docs/api.md instead");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    std::fprintf(stderr, "trainyard-operator: %s%s\n", error.what(), Suggestion(app, argc, argv).c_str());
    return kExitUsage;
  }
  if (*run_command) return RunOperator(run);
  if (*local_command) {
    if (local.file.empty() && !local.serve) {
      std::fprintf(stderr, "trainyard-operator: local: nothing to do; give -f FILE, or --serve PORT\n");
      return kExitUsage;
    }
    return RunLocal(local);
  }
  if (*validate) return Validate(file);
  std::cout << (reference ? api::ReferenceMarkdown() : api::CrdYaml());
  return 0;
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) { return trainyard::Main(argc, argv); }
