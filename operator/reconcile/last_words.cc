#include "operator/reconcile/last_words.h"

#include "common/json.h"
#include "common/text.h"
#include "operator/base/json_access.h"

namespace trainyard::reconcile {
namespace {

constexpr size_t kTailLines = 20, kMaxReason = 128;

std::vector<std::string> LastLines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  if (lines.size() > kTailLines) lines.erase(lines.begin(), lines.end() - kTailLines);
  return lines;
}

// Several mistakes of a configuration come in as many lines; a status has one.
std::string InOneLine(const std::string& text) {
  std::string line;
  for (const char c : text) line += c == '\n' ? std::string("; ") : std::string(1, c);
  return line;
}

// No attempt starts for as long as that: three hundred years.
constexpr double kMaxSeconds = 9e9;

std::optional<double> Seconds(const nlohmann::json& told, const char* key) {
  const std::optional<double> seconds = json::KnownNumber(told, key);
  return seconds && *seconds >= 0 && *seconds < kMaxSeconds ? seconds : std::nullopt;
}

}  // namespace

api::Startup ReadStartup(const nlohmann::json& told) {
  api::Startup startup;
  startup.rendezvous = Seconds(told, "rendezvous_seconds");
  startup.first_step = Seconds(told, "first_step_seconds");
  startup.from_step = json::KnownCount(told, "step");
  return startup;
}

LastWords ReadLastWords(const std::string& termination_message) {
  LastWords words;
  const auto said = ParseJson(termination_message);
  if (json::Whole(said, "v") != 1) {
    words.tail = LastLines(termination_message);
    if (!words.tail.empty()) words.message = words.tail.back();
    return words;
  }
  words.from_launcher = true;
  words.rank = json::KnownCount(said, "rank");
  words.reason = Cut(json::Text(said, "reason"), kMaxReason);
  words.message = InOneLine(json::Text(said, "message"));
  words.step = json::KnownCount(said, "step");
  words.startup = ReadStartup(json::Field(said, "startup"));
  // 0 is what a launcher says of a run that has none.
  if (const int64_t step = json::Count(said, "checkpoint_step"); step > 0) words.checkpoint_step = step;
  for (const nlohmann::json& line : json::List(said, "tail")) {
    if (line.is_string() && words.tail.size() < kTailLines) words.tail.push_back(line.get<std::string>());
  }
  return words;
}

}  // namespace trainyard::reconcile
