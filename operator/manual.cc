#include "operator/manual.h"

namespace trainyard {

cli::Manual RunManual() {
  return {
      .description =
          "Watches TrainingJobs and their pods and does what they ask for, until SIGTERM or SIGINT; jobs and pods stay "
          "as they "
          "are then. Without --kubeconfig it is a pod of the cluster and uses its service account.\n\n"
          "It serves /metrics for Prometheus, /healthz (the process is alive) and /readyz (its caches are whole). Its "
          "log "
          "is JSON, a line each, on standard error.",
      .environment = {{"KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT",
                       "Where the API is, in a pod; the kubelet sets them."},
                      {"HTTPS_PROXY, NO_PROXY",
                       "A proxy on the way to the API, and hosts that are reached without it; also in lower case."},
                      {"PATH", "Where a kubeconfig's exec plugin is looked for."}},
      .files = {{"/var/run/secrets/kubernetes.io/serviceaccount/",
                 "In a pod: token, ca.crt, namespace. Read again every minute."}},
      .exit_codes = {{"0", "Stopped by a signal."},
                     {"2", "The command line is wrong."},
                     {"64", "The kubeconfig, the address or the lease cannot be used."},
                     {"69",
                      "The address is in use, or the lease was lost: whoever restarts it makes it a candidate again."}},
      .examples = {{"trainyard-operator run --leader-elect --listen 0.0.0.0:8080", "As in a cluster, one of several"},
                   {"trainyard-operator run --kubeconfig ~/.kube/config --namespace research",
                    "From outside, for one namespace"}},
      .see_also = {"docs/metrics.md", "docs/architecture.md"}};
}

cli::Manual ValidateManual() {
  return {.description =
              "Makes the checks that the operator would make, without a cluster. Where the container runs `trainyard "
              "launch` "
              "it asks the trainyard beside this program about spec.config, and says so when there is none. Other "
              "arguments of a container's command are the program's own, and are not looked at.",
          .environment = {},
          .files = {},
          .exit_codes = {{"0", "The job is valid; what is noted about it is printed."},
                         {"2", "The command line is wrong."},
                         {"64", "The file cannot be read, or the job is wrong; each mistake is a line."}},
          .examples = {{"trainyard-operator validate -f job.yaml", ""},
                       {"helm template . | trainyard-operator validate -f -", "From a pipe"}},
          .see_also = {"docs/api.md", "docs/config.md"}};
}

cli::Manual CrdManual() {
  return {.description = "Prints the CustomResourceDefinition of TrainingJob, as manifests/crd.yaml holds it.",
          .environment = {},
          .files = {},
          .exit_codes = {{"0", "Printed."}, {"2", "The command line is wrong."}, {"74", "It cannot be written."}},
          .examples = {{"trainyard-operator crd | kubectl apply --server-side -f -", "To install or update it"},
                       {"trainyard-operator crd --reference > docs/api.md", "Its reference"}},
          .see_also = {"docs/api.md"}};
}

}  // namespace trainyard
