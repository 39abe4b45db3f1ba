#include "operator/commands.h"

#include <cstdio>
#include <iostream>
#include <memory>

#include "common/command_line/program.h"
#include "operator/api/crd.h"
#include "operator/api/metadata.h"
#include "operator/base/exit_codes.h"
#include "operator/config_check.h"
#include "operator/manual.h"
#include "operator/run_command.h"

namespace trainyard {
namespace {

int Validate(const std::string& file, const Notes& notes) {
  Result<api::JobFile> read = api::ReadJobFile(file);
  if (!read.ok()) {
    std::fprintf(stderr, "trainyard-operator: %s\n", read.status().message().c_str());
    return kExitInvalid;
  }
  api::GenerateName(read->job);
  const std::vector<std::string> problems = api::CheckJob(read->job);
  for (const std::string& problem : problems) std::fprintf(stderr, "%s: %s\n", file.c_str(), problem.c_str());
  if (!problems.empty()) return kExitInvalid;
  const ConfigVerdict config = CheckConfig(read->job);
  for (const std::string& problem : config.problems) std::fprintf(stderr, "%s: %s\n", file.c_str(), problem.c_str());
  if (!config.problems.empty()) return kExitInvalid;
  std::printf("%s: valid\n", file.c_str());
  if (!config.unchecked.empty()) std::printf("  %s\n", config.unchecked.c_str());
  for (const std::string& claim : api::ForeignClaims(*read)) std::printf("  %s\n", claim.c_str());
  for (const std::string& note : notes(*read)) std::printf("  %s\n", note.c_str());
  return 0;
}

// What is wrong with a namespace that an option names; empty: nothing.
std::string NamespaceProblem(const std::string& name) {
  if (api::IsDnsLabel(name)) return "";
  return "'" + name + "' is no namespace; allowed: lower case letters, digits and -, at most 63";
}

}  // namespace

AddedCommand AddRun(CLI::App& app) {
  const auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "the operator, in a cluster or with a kubeconfig");
  command->add_option("--kubeconfig", options->kubeconfig, "a kubeconfig file; without it, the pod's service account")
      ->type_name("FILE");
  command->add_option("--namespace", options->ns, "watch only this namespace; without it, all")
      ->check(NamespaceProblem)
      ->type_name("NAME");
  command->add_option("--listen", options->listen, "where /metrics, /healthz and /readyz are served")
      ->capture_default_str()
      ->type_name("ADDRESS:PORT");
  command->add_flag("--leader-elect", options->leader_elect,
                    "of several operators let one work, the holder of a Lease; the others stand by");
  command->add_option("--lease-name", options->lease_name, "the Lease's name")
      ->capture_default_str()
      ->type_name("NAME");
  command->add_option("--lease-namespace", options->lease_namespace, "its namespace; without it, the pod's own")
      ->check(NamespaceProblem)
      ->type_name("NAME");
  return {[options] { return RunOperator(*options); }, RunManual()};
}

AddedCommand AddValidate(CLI::App& app, const Notes& notes) {
  const auto file = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("validate", "the checks that the operator would make, offline");
  command->add_option("-f,--file", *file, "a TrainingJob; - is standard input")->required()->type_name("FILE");
  return {[file, notes] { return cli::Printed(kOperatorProgram, Validate(*file, notes)); }, ValidateManual()};
}

AddedCommand AddCrd(CLI::App& app) {
  const auto reference = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("crd", "prints the CustomResourceDefinition");
  command->add_flag("--reference", *reference, "print docs/api.md instead");
  return {[reference] {
            std::cout << (*reference ? api::ReferenceMarkdown() : api::CrdYaml());
            return cli::Printed(kOperatorProgram, 0);
          },
          CrdManual()};
}

}  // namespace trainyard
