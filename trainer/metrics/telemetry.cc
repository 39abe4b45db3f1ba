#include "trainer/metrics/telemetry.h"

#include "trainer/base/text.h"
#include "trainer/metrics/status.h"

namespace trainyard {

void Telemetry::To(const std::string& name, SinkQueue::Open open, const SinkOptions& options) {
  sinks_.push_back(std::make_unique<SinkQueue>(name, std::move(open), options));
}

void Telemetry::Add(int64_t step, EventContent content) {
  const auto event = std::make_shared<const Event>(
      Event{.attempt = attempt_, .step = step, .time = UnixTime(), .content = std::move(content)});
  for (const auto& sink : sinks_) sink->Add(event);
}

std::map<std::string, int64_t> Telemetry::dropped() const {
  std::map<std::string, int64_t> dropped;
  for (const auto& sink : sinks_) dropped[sink->name()] = sink->dropped();
  return dropped;
}

std::vector<std::string> Telemetry::TakeWarnings() {
  std::vector<std::string> warnings;
  for (const auto& sink : sinks_) {
    if (const std::string why = sink->TakeFailure(); !why.empty())
      warnings.push_back("telemetry is lost: " + sink->name() + ": " + why);
  }
  return warnings;
}

std::vector<std::string> Telemetry::Close() {
  for (const auto& sink : sinks_) sink->Finish();
  std::vector<std::string> losses;
  for (const auto& sink : sinks_) {
    const bool written = sink->Close();
    const int64_t dropped = sink->dropped();
    if (written && dropped == 0) continue;
    const std::string why = sink->TakeFailure();  // empty when it was told before
    losses.push_back(Format("telemetry: %s lost %lld events", sink->name().c_str(), static_cast<long long>(dropped)) +
                     (why.empty() ? "" : ": " + why) +
                     (written ? "" : ", and did not end in time; the run does not wait for it"));
  }
  sinks_.clear();
  return losses;
}

}  // namespace trainyard
