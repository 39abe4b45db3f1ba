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
  for (const api::OtherObject& other : file.others) {
    notes.push_back(other.kind == api::kClaimKind
                        ? "`local` needs no " + other.kind + " " + other.name + ": a claim is a folder of --state-dir"
                        : "`local` does not make " + other.kind + " " + other.name);
  }
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
  if (options.api_only && !options.serve) {
    std::fprintf(stderr,
                 "trainyard-operator: local: --api-only runs no job, and without --serve PORT nobody sees it\n");
    return kExitUsage;
  }
  return RunLocal(options);
}

cli::Manual LocalManual() {
  return {.description =
              "Runs the control plane of a cluster in this one process: an API server in memory, the same operator as "
              "`run` over the "
              "same HTTPS client, and an agent that runs pods as processes. No root, no images, and no network but "
              "loopback; "
              "commands come from this program's folder and PATH. The file is the one that `kubectl apply` takes.\n\n"
              "With --serve, kubectl works on it: the kubeconfig's place is printed. Ctrl-C gives the workers their "
              "grace for a "
              "checkpoint; a second one kills them. The next start with the same --state-dir goes on.",
          .environment = {{"PATH", "Where the containers' commands are looked for, behind this program's own folder."},
                          {"TMPDIR", "Where the temporary folder is made that stands for a missing --state-dir."}},
          .files = {{"DIR/kubeconfig", "For kubectl; mode 0600, new at every start."},
                    {"DIR/api.json, DIR/api-*.journal", "All objects."},
                    {"DIR/prometheus.json",
                     "Where the workers that run serve their metrics, for Prometheus' file_sd_configs."},
                    {"DIR/pods, DIR/claims",
                     "Logs and volumes of the pods, and claims, which outlive them (docs/formats.md)."}},
          .exit_codes = {{"0", "The job succeeded."},
                         {"N", "The job failed, and N is its culprit's exit code; 1 where that was 0."},
                         {"2", "The command line is wrong."},
                         {"64", "The job is invalid, this machine cannot run it, or --state-dir cannot be used."},
                         {"69", "The port is in use."},
                         {"70", "Something of ours broke."},
                         {"75", "Stopped by Ctrl-C, SIGTERM or a closed terminal, or the job was deleted."}},
          .examples = {{"trainyard-operator local -f manifests/examples/dark-room.yaml",
                        "A job, from its start to its end"},
                       {"trainyard-operator local -f job.yaml --serve 6443 --state-dir state",
                        "With an API for kubectl, and to go on later"}},
          .see_also = {"docs/local.md", "docs/api.md", "trainyard launch"}};
}

AddedCommand AddLocal(CLI::App& app) {
  const auto options = std::make_shared<LocalOptions>();
  CLI::App* command = app.add_subcommand("local", "the same control plane on this machine, with pods as processes");
  command->add_option("-f,--file", options->file, "a TrainingJob; - is standard input")->type_name("FILE");
  command->add_option("--serve", options->serve, "port of the API on 127.0.0.1 for kubectl; 0 is any free one")
      ->check(CLI::Range(0, 65535))
      ->type_name("PORT");
  command->add_option("--listen", options->listen, "address:port of the operator's /metrics, /healthz and /readyz")
      ->type_name("ADDRESS:PORT");
  command->add_flag("--keep", options->keep, "go on serving after the job's end, until Ctrl-C");
  command
      ->add_option(
          "--state-dir", options->state_dir,
          "where objects, logs and claims lie, and where the next start goes on; without it, a new temporary folder")
      ->check([](const std::string& path) { return path.empty() ? "a folder's name is needed" : ""; })
      ->type_name("DIR");
  command->add_flag("--api-only", options->api_only,
                    "only the API: no operator, and pods stay objects; for tests of clients");
  command->add_flag("--quiet", options->quiet, "no live view and no summary");
  return {[options] { return Local(*options); }, LocalManual()};
}

cli::Manual About() {
  return {
      .description =
          "The operator for Kubernetes, the same on one machine without a cluster, and its checks without either.",
      .environment = {},
      .files = {},
      .exit_codes = {},
      .examples = {{"trainyard-operator local -f manifests/examples/dark-room.yaml", "A first job, on this machine"}},
      .see_also = {"trainyard", "docs/cli.md", "docs/architecture.md"}};
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  using namespace trainyard;
  return RunCommandLine(
      argc, argv,
      {.about = About(),
       .libraries = {{"cpp-httplib", TRAINYARD_HTTPLIB, "unknown"}},
       .commands = {AddRun, AddLocal, [](CLI::App& app) { return AddValidate(app, WhatLocalDoes); }, AddCrd}});
}
