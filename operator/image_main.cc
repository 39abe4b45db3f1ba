// trainyard-operator as an image has it: without `local`, and so without what makes processes, namespaces and mounts.
#include "operator/commands.h"

int main(int argc, char** argv) {
  using namespace trainyard;
  const auto no_notes = [](const api::JobFile&) { return std::vector<std::string>(); };
  return RunCommandLine(argc, argv,
                        "Runs TrainingJobs: distributed training on Kubernetes.\n\n"
                        "Example:\n  trainyard-operator run --leader-elect",
                        {AddRun, [&](CLI::App& app) { return AddValidate(app, no_notes); }, AddCrd});
}
