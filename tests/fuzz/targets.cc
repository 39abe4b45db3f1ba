#include "tests/fuzz/targets.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/json.h"
#include "operator/api/json.h"
#include "operator/kube/json_lines.h"
#include "operator/kube/kubeconfig.h"
#include "operator/net/http_head.h"
#include "operator/progress_poller.h"
#include "operator/reconcile/observe.h"
#include "operator/reconcile/record_bytes.h"

namespace trainyard::fuzz {
namespace {

using Json = nlohmann::json;

void Require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s\n", promise);
  std::abort();
}

// A limit that small inputs reach as well.
constexpr size_t kMaxFrame = 4096;

// The documents of `bytes` in pieces of `piece` bytes; false in `ok` when the stream was refused.
std::vector<std::string> Documents(std::string_view bytes, size_t piece, bool& ok) {
  std::vector<std::string> documents;
  kube::JsonLines lines(kMaxFrame);
  ok = true;
  for (size_t at = 0; ok && at < bytes.size(); at += piece) {
    const std::string_view part = bytes.substr(at, piece);
    ok = lines.Feed(part.data(), part.size(), [&](const Json& json) { documents.push_back(json.dump()); }).ok();
  }
  return documents;
}

}  // namespace

void WatchFrames(std::string_view bytes) {
  bool whole_ok = false, cut_ok = false;
  const auto whole = Documents(bytes, 1 << 20, whole_ok);
  const auto cut = Documents(bytes, 7, cut_ok);
  // A whole piece may hold a document that is longer than what is kept between pieces.
  if (whole_ok && cut_ok) Require(whole == cut, "a watch reads the same wherever it is cut");
}

void Kubeconfig(std::string_view bytes) {
  const int file = memfd_create("kubeconfig", MFD_CLOEXEC);
  Require(write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()), "a file can be written");
  const Result<kube::Endpoint> endpoint = kube::ReadKubeconfig("/proc/self/fd/" + std::to_string(file));
  close(file);
  if (!endpoint.ok()) return Require(!endpoint.status().message().empty(), "an error says what is wrong");
  Require(!endpoint->host.empty() && endpoint->port >= 1 && endpoint->port <= 65535, "an endpoint can be reached");
}

void TrainingJob(std::string_view bytes) {
  const Json object = ParseJson(bytes);
  if (object.is_discarded()) return;
  const reconcile::JobRecord record = reconcile::JobFromApi(object);
  Require(reconcile::BytesOf(record) > 0, "a record has a size");
  const Json status = api::StatusToJson(record.job.status);
  std::vector<api::FieldError> errors;
  const auto again = api::JobFromJson({{"spec", Json::object()}, {"status", status}}, errors);
  Require(api::StatusToJson(again.status) == status, "a status reads as it was written");
  (void)status.dump();
  const auto pod = std::make_shared<const reconcile::PodRecord>(reconcile::PodFromJson(object));
  Require(reconcile::BytesOf(*pod) > 0, "a record has a size");
  Require(pod->rank >= -1 && pod->attempt >= 0 && pod->status_port >= 0 && pod->status_port <= 65535,
          "a pod's numbers are in their ranges");
  if (pod->end) Require(pod->end->exit_code.value_or(0) >= 0 && pod->end->words.tail.size() <= 20, "an end is bounded");
  (void)reconcile::SortPods(record, {pod});
}

void HttpHead(std::string_view bytes) {
  if (const std::optional<size_t> end = net::HeadEnd(bytes)) {
    Require(*end <= bytes.size(), "a head ends in its text");
    const Result<net::HttpHead> head = net::ParseHead(bytes.substr(0, *end));
    if (head.ok()) {
      Require(head->code >= 100 && head->code <= 999, "a code has three digits");
      Require(!(head->chunked && head->length), "a body has one length");
      Require(head->Field("content-encoding").empty() || head->Field("content-encoding") == "identity",
              "nothing is unpacked");
    }
    bytes.remove_prefix(*end);
  }
  if (const auto report = ReportFromStatus(std::string(bytes), Time{})) {
    const api::Progress& progress = report->progress;
    Require(report->attempt >= 0 && progress.step.value_or(0) >= 0 && progress.percent.value_or(0) <= 100,
            "a report is bounded");
  }
}

}  // namespace trainyard::fuzz
