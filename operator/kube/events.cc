#include "operator/kube/events.h"

#include <algorithm>
#include <cstdio>

#include "common/text.h"

namespace trainyard::kube {
namespace {

constexpr double kSeriesSeconds = 360;
constexpr size_t kMaxNote = 1024, kMaxSeries = 4096, kMaxBuckets = 16384;
constexpr double kKept = 2;  // for the last word
constexpr double kBurst = 25 + kKept, kSecondsPerToken = 300;

}  // namespace

bool EventRecorder::TakeToken(const std::string& uid, bool last_word, Instant now) {
  const auto filled = [&](const Bucket& bucket) {
    return std::min(kBurst, bucket.tokens + SecondsBetween(bucket.filled, now) / kSecondsPerToken);
  };
  // Whoever makes so many objects has their events for nothing once; a server's memory is not theirs.
  const bool many = buckets_.size() >= kMaxBuckets;
  if (many) std::erase_if(buckets_, [&](const auto& entry) { return filled(entry.second) >= kBurst; });
  if (buckets_.size() >= kMaxBuckets) buckets_.clear();
  Bucket& bucket = buckets_.try_emplace(uid, Bucket{kBurst, now}).first->second;
  bucket = {filled(bucket), now};
  if (bucket.tokens < (last_word ? 1 : 1 + kKept)) return false;
  bucket.tokens -= 1;
  return true;
}

Status EventRecorder::Record(const ObjectReference& about, const std::string& type, const std::string& reason,
                             const std::string& full_note) {
  const std::string note = Cut(full_note, kMaxNote);
  const std::string key = about.uid + "\n" + reason + "\n" + note;
  const Time now = clock_.Now();
  const Instant moment = clock_.Steady();
  std::string name;
  int64_t count = 1;
  {
    const MutexLock lock(mutex_);
    if (!TakeToken(about.uid, reason == "Succeeded" || reason == "Failed", moment))
      return Status(Code::kThrottled, about.ns + "/" + about.name + " has had its events for now");
    const bool full = series_.size() > kMaxSeries;
    std::erase_if(
        series_, [&](const auto& entry) { return full || SecondsBetween(entry.second.last, moment) > kSeriesSeconds; });
    const auto [entry, first] = series_.try_emplace(key);
    Series& series = entry->second;
    if (first) {
      char suffix[40];
      std::snprintf(suffix, sizeof suffix, ".%llx.%llx",
                    static_cast<unsigned long long>(now.time_since_epoch().count()),
                    static_cast<unsigned long long>(++next_));
      series.name = about.name + suffix;
    } else {
      count = ++series.count;
    }
    series.last = moment;
    name = series.name;
  }
  if (count > 1) {
    const Json patch = {{"series", {{"count", count}, {"lastObservedTime", FormatMicroTime(now)}}}};
    return Kept(key, client_.MergePatch(kEvents, about.ns, name, "", patch, {}).status());
  }
  const Json event = {{"apiVersion", "events.k8s.io/v1"},
                      {"kind", "Event"},
                      {"metadata", {{"name", name}, {"namespace", about.ns}}},
                      {"eventTime", FormatMicroTime(now)},
                      {"type", type},
                      {"reason", reason},
                      {"action", reason},
                      {"note", note},
                      {"reportingController", "trainyard.dev/operator"},
                      {"reportingInstance", instance_},
                      {"regarding",
                       {{"apiVersion", about.api_version},
                        {"kind", about.kind},
                        {"namespace", about.ns},
                        {"name", about.name},
                        {"uid", about.uid}}}};
  return Kept(key, client_.Create(kEvents, about.ns, event, {}).status());
}

Status EventRecorder::Kept(const std::string& key, Status status) {
  if (!status.ok()) {
    const MutexLock lock(mutex_);
    series_.erase(key);
  }
  return status;
}

}  // namespace trainyard::kube
