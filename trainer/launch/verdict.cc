#include "trainer/launch/verdict.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "operator/api/exit_reason.h"

namespace trainyard {
namespace {

constexpr size_t kMaxMessageBytes = 4096;  // the kubelet's limit

}  // namespace

std::string ReasonOf(const RankEnd& end) { return end.out_of_memory ? "OOMKilled" : ExitReason(end.exit_code); }

int CausePriority(const RankEnd& end) {
  if (end.out_of_memory) return 2;
  if (end.signal != 0) return end.signalled_by_us ? 7 : 4;
  switch (end.exit_code) {
    case 0:
      return 8;
    case 2:
    case 64:
    case 65:
    case 72:
    case 126:
    case 127:
      return 0;
    case 73:
      return 1;
    case 71:
      return 2;
    case 75:
      return 5;
    case 69:
      return 6;
    default:
      return 3;
  }
}

size_t Culprit(const std::vector<RankEnd>& ends) {
  const auto best = std::min_element(ends.begin(), ends.end(), [](const RankEnd& a, const RankEnd& b) {
    const int pa = CausePriority(a), pb = CausePriority(b);
    return pa != pb ? pa < pb : a.time < b.time;
  });
  return static_cast<size_t>(best - ends.begin());
}

std::string TerminationMessage(const RankEnd& culprit, int64_t attempt, const StartupTimes& startup) {
  nlohmann::ordered_json json = {
      {"v", 1},
      {"attempt", attempt},
      {"rank", culprit.rank},
      {"exit_code", culprit.exit_code},
      {"signal", culprit.signal},
      {"reason", ReasonOf(culprit)},
      {"step", culprit.step ? nlohmann::ordered_json(*culprit.step) : nlohmann::ordered_json()},
      {"checkpoint_step", culprit.checkpoint_step},
      {"startup", startup.ToJson()},
      {"message", culprit.message},
      {"tail", culprit.tail}};
  // Output of a dying process may hold anything: invalid UTF-8 is replaced, not refused.
  auto text = [&] { return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace); };
  while (text().size() > kMaxMessageBytes && !json["tail"].empty()) json["tail"].erase(json["tail"].begin());
  while (text().size() > kMaxMessageBytes) {
    const auto message = json["message"].get<std::string>();
    json["message"] = message.substr(0, message.size() * 3 / 4);
  }
  return text();
}

}  // namespace trainyard
