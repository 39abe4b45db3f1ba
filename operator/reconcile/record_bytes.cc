#include "operator/reconcile/record_bytes.h"

#include <string>

#include "operator/api/validation.h"

namespace trainyard::reconcile {
namespace {

// A short text stands inside of the string itself.
size_t Outside(const std::string& text) {
  static const size_t inside = std::string().capacity();
  return text.capacity() > inside ? text.capacity() + 1 : 0;
}

template <class... Texts>
size_t OutsideOf(const Texts&... texts) {
  return (Outside(texts) + ...);
}

size_t Outside(const std::vector<std::string>& texts) {
  size_t bytes = texts.capacity() * sizeof(std::string);
  for (const std::string& text : texts) bytes += Outside(text);
  return bytes;
}

// Of a value in a tree of maps: about four words of a node's own.
size_t Outside(const nlohmann::json& value) {
  constexpr size_t kNode = 4 * sizeof(void*);
  size_t bytes = 0;
  if (value.is_string()) return sizeof(std::string) + Outside(value.get_ref<const std::string&>());
  if (value.is_object()) {
    for (const auto& [key, member] : value.items())
      bytes += kNode + sizeof(std::string) + Outside(key) + sizeof value + Outside(member);
  }
  if (value.is_array()) {
    for (const nlohmann::json& member : value) bytes += sizeof value + Outside(member);
  }
  return bytes;
}

}  // namespace

// Shared texts are not its own.
int64_t BytesOf(const PodRecord& pod) {
  size_t bytes = sizeof pod + OutsideOf(pod.name, pod.uid, pod.ip);
  if (pod.end) {
    bytes += sizeof *pod.end;
    bytes += OutsideOf(pod.end->reason, pod.end->init_container, pod.end->words.reason, pod.end->words.message);
    bytes += Outside(pod.end->words.tail);
  }
  return static_cast<int64_t>(bytes);
}

int64_t BytesOf(const JobRecord& record) {
  const api::TrainingJob& job = record.job;
  size_t bytes = sizeof record + OutsideOf(job.name, job.ns, job.uid, job.resource_version, job.status.spec_hash,
                                           job.status.checkpoint_hash);
  bytes += Outside(job.labels) + OutsideOf(record.pod_template, record.config, record.volume);
  for (const api::Condition& condition : job.status.conditions)
    bytes += sizeof condition + OutsideOf(condition.type, condition.reason, condition.message);
  bytes += api::RuleBytes(job.spec.restart.rules);
  for (const api::FieldError& error : record.errors)
    bytes += sizeof error + OutsideOf(error.field, error.value, error.allowed);
  if (job.status.last_failure)
    bytes += Outside(job.status.last_failure->message) + Outside(job.status.last_failure->tail);
  return static_cast<int64_t>(bytes);
}

}  // namespace trainyard::reconcile
