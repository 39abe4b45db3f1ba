#include "operator/watch_trouble.h"

namespace trainyard {
namespace {

constexpr double kFirstSeconds = 2, kSecondSeconds = 60, kLaterSeconds = 300;
constexpr double kListSeconds = 30;

std::string Remedy(const Status& status, const kube::Resource& resource) {
  const std::string what = resource.plural + (resource.group.empty() ? "" : "." + resource.group);
  switch (status.code()) {
    case Code::kForbidden:
      return "grant the operator get, list and watch on " + what + ", in the namespaces that it watches";
    case Code::kUnauthorized:
      return "the server does not accept our token or certificate: look at the kubeconfig's user, or at the service "
             "account";
    case Code::kNotFound:
      return resource.group.empty()
                 ? ""
                 : "the server does not know " + what + ": apply what `trainyard-operator crd` prints";
    case Code::kUnavailable:
    case Code::kDeadline:
      if (status.message().find("TLS: the certificate") != std::string::npos)
        return "certificate-authority must be the one that signed the server's certificate, and the server's address "
               "one that "
               "it is for (tls-server-name says another)";
      return "look whether the API server runs, and whether its address, a proxy or a network policy is in the way";
    default:
      return "";
  }
}

}  // namespace

std::string Explain(const kube::Trouble& trouble, const kube::Resource& resource) {
  const std::string remedy = Remedy(trouble.status, resource);
  return trouble.status.ToString() + (remedy.empty() ? "" : "; " + remedy);
}

void TroubleLog::Look(const std::optional<kube::Trouble>& trouble, Instant now) {
  if (!trouble) {
    if (said_ > 0) log_.Info("the watch works again", {{"resource", resource_.plural}});
    said_ = 0;
    return;
  }
  if (said_ == 0) next_ = After(trouble->since, kFirstSeconds);
  if (now < next_) return;
  log_.Warning("the watch fails; jobs stay as they are until it works again",
               {{"resource", resource_.plural},
                {"for", FormatDuration(SecondsBetween(trouble->since, now))},
                {"error", Explain(*trouble, resource_)}});
  next_ = After(now, ++said_ == 1 ? kSecondSeconds : kLaterSeconds);
}

void TroubleLog::LookAtList(bool whole, Instant now) {
  if (whole || said_ > 0) return;
  if (!waits_since_) {
    waits_since_ = now;
    next_of_list_ = After(now, kListSeconds);
  }
  if (now < next_of_list_) return;
  log_.Warning("the first list is not whole yet; no job is looked at before it is",
               {{"resource", resource_.plural}, {"for", FormatDuration(SecondsBetween(*waits_since_, now))}});
  next_of_list_ = After(now, kLaterSeconds);
}

}  // namespace trainyard
