#include "trainer/metrics/json_lines.h"

#include <nlohmann/json.hpp>

#include "common/json.h"
#include "trainer/base/file.h"
#include "trainer/base/text.h"
#include "trainer/metrics/append_file.h"
#include "trainer/metrics/png.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

std::string Quoted(const std::string& text) { return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string Numbers(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += (text.empty() ? "[" : ",") + JsonFloat(static_cast<float>(value));
  return text.empty() ? "[]" : text + "]";
}

// Nothing where the line cannot be read.
std::optional<bool> IsNotDoneAgain(const std::string& line, const JsonLinesOptions& options) {
  const Json json = ParseJson(line);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) return std::nullopt;
  const auto step = json["step"].get<int64_t>();
  const bool of_evaluation = !json.contains("train/loss");
  return step < options.first_step || (step == options.first_step && !(options.repeats_evaluation && of_evaluation));
}

void CutWhatIsDoneAgain(const fs::path& path, const JsonLinesOptions& options) {
  if (!fs::is_regular_file(LookAt(path))) return;
  KeepLeadingLines(
      path, [&](const std::string& line) { return IsNotDoneAgain(line, options); }, options.as_owner);
}

class JsonLines : public Sink {
 public:
  explicit JsonLines(const JsonLinesOptions& options)
      : images_(options.directory / "images"), file_(options.directory / "log.jsonl") {}

  void Write(const Event& event) override {
    const std::string content = std::visit(
        Cases{[](const Scalars& scalars) {
                std::string text;
                for (const auto& [tag, value] : scalars)
                  text += "," + Quoted(tag) + ":" + JsonFloat(static_cast<float>(value));
                return text;
              },
              [&](const Image& image) {
                return ",\"image\":" + Quoted(image.tag) + ",\"file\":" + Quoted(Save(image, event.step));
              },
              [](const Histogram& h) {
                return ",\"histogram\":" + Quoted(h.tag) +
                       Format(",\"min\":%s,\"max\":%s,\"count\":%.0f,\"sum\":%s,\"sum_squares\":%s",
                              JsonFloat(h.min).c_str(), JsonFloat(h.max).c_str(), h.count, JsonFloat(h.sum).c_str(),
                              JsonFloat(h.sum_squares).c_str()) +
                       ",\"limits\":" + Numbers(h.limits) + ",\"counts\":" + Numbers(h.counts);
              },
              [](const Text& text) { return ",\"text\":" + Quoted(text.tag) + ",\"value\":" + Quoted(text.text); },
              [](const Curve& curve) {
                return ",\"curve\":" + Quoted(curve.tag) + ",\"x\":" + Numbers(curve.x) + ",\"y\":" + Numbers(curve.y);
              },
              // config.json holds the configuration.
              [](const HParams&) { return std::string(); }, [](const RunComplete&) { return std::string(); }},
        event.content);
    if (content.empty()) return;
    file_.Append(Format("{\"time\":%.3f,\"attempt\":%lld,\"step\":%lld", event.time,
                        static_cast<long long>(event.attempt), static_cast<long long>(event.step)) +
                 content + "}\n");
  }

 private:
  // Returns the file's name, relative to the log.
  std::string Save(const Image& image, int64_t step) const {
    const std::string name = FileNameOf(image.tag, step) + ".png";
    fs::create_directories(images_);
    WriteFileAtomic(images_ / name, EncodePng(image));
    return "images/" + name;
  }

  fs::path images_;
  AppendFile file_;
};

}  // namespace

std::unique_ptr<Sink> OpenJsonLines(const JsonLinesOptions& options) {
  CutWhatIsDoneAgain(options.directory / "log.jsonl", options);
  return std::make_unique<JsonLines>(options);
}

}  // namespace trainyard
