#include "operator/commands.h"

#include <cstdio>
#include <iostream>
#include <memory>

#include "operator/api/crd.h"
#include "operator/base/exit_codes.h"
#include "operator/config_check.h"
#include "operator/run_command.h"

namespace trainyard {
namespace {

int Validate(const std::string& file, const Notes& notes) {
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
  for (const std::string& note : notes(*read)) std::printf("  %s\n", note.c_str());
  return 0;
}

}  // namespace

Action AddRun(CLI::App& app) {
  const auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run",
                                         "the operator, in a cluster or with --kubeconfig\n\nExample:\n  "
                                         "trainyard-operator run --kubeconfig ~/.kube/config --namespace research");
  command->add_option("--kubeconfig", options->kubeconfig, "a kubeconfig file; without it, the pod's service account");
  command->add_option("--namespace", options->ns, "watch only this namespace");
  command->add_option("--listen", options->listen, "address:port of /metrics, /healthz and /readyz")
      ->capture_default_str();
  command->add_flag("--leader-elect", options->leader_elect,
                    "of several operators let one work, the holder of a Lease; the others stand by");
  command->add_option("--lease-name", options->lease_name, "the Lease's name")->capture_default_str();
  command->add_option("--lease-namespace", options->lease_namespace, "its namespace; without it, the pod's own");
  return [options] { return RunOperator(*options); };
}

Action AddValidate(CLI::App& app, const Notes& notes) {
  const auto file = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "validate",
      "the checks that the operator would make, offline\n\nExample:\n  trainyard-operator validate -f job.yaml");
  command->add_option("-f,--file", *file, "a TrainingJob; - is standard input")->required();
  return [file, notes] { return Validate(*file, notes); };
}

Action AddCrd(CLI::App& app) {
  const auto reference = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand(
      "crd", "prints the CustomResourceDefinition\n\nExample:\n  trainyard-operator crd | kubectl apply -f -");
  command->add_flag("--reference", *reference, "print docs/api.md instead");
  return [reference] {
    std::cout << (*reference ? api::ReferenceMarkdown() : api::CrdYaml());
    return 0;
  };
}

}  // namespace trainyard
