#include "trainer/metrics/tensorboard.h"

#include <algorithm>
#include <cmath>

#include "trainer/metrics/event_file.h"
#include "trainer/metrics/png.h"

namespace trainyard {
namespace {

// Field numbers are those of tensorflow/core/framework/{summary,tensor,types}.proto and
// tensorboard/plugins/hparams/plugin_data.proto.
enum DataType { kFloat = 1, kString = 7 };

Message Scalar(const std::string& tag, double number) {
  return Message().Bytes(1, tag).Float(2, static_cast<float>(number));
}

// What a plug-in reads: its name and data beside a tensor.
Message ForPlugin(const std::string& tag, const char* plugin, const Message& data, const Message& tensor) {
  return Message().Bytes(1, tag).Add(8, tensor).Add(
      9, Message().Add(1, Message().Bytes(1, plugin).Bytes(2, data.bytes())).Varint(4, 2 /* DATA_CLASS_TENSOR */));
}

Message PictureOf(const Image& image) {
  Message picture;
  picture.Varint(1, static_cast<uint64_t>(image.height)).Varint(2, static_cast<uint64_t>(image.width));
  picture.Varint(3, static_cast<uint64_t>(image.channels)).Bytes(4, EncodePng(image));
  return Message().Bytes(1, image.tag).Add(4, picture);
}

Message BucketsOf(const Histogram& h) {
  Message histogram;
  histogram.Double(1, h.min).Double(2, h.max).Double(3, h.count).Double(4, h.sum).Double(5, h.sum_squares);
  histogram.PackedDoubles(6, h.limits).PackedDoubles(7, h.counts);
  return Message().Bytes(1, h.tag).Add(5, histogram);
}

Message TextOf(const Text& text) {
  const Message shape = Message().Add(2, Message().Varint(1, 1));
  return ForPlugin(text.tag, "text", {}, Message().Varint(1, kString).Add(2, shape).Bytes(8, text.text));
}

Message ForHParams(const char* tag, int field, const Message& info) {
  const Message empty = Message().Varint(1, kFloat).Add(2, Message().Add(2, Message().Varint(1, 0)));
  return ForPlugin(tag, "hparams", Message().Varint(1, 0).Add(field, info), empty);
}

Message SessionStart(const HParams& parameters, double time) {
  Message info;
  for (const auto& [name, parameter] : parameters.values) {
    Message value;  // google.protobuf.Value
    std::visit(Cases{[&](double number) { value.Double(2, number); }, [&](bool on) { value.Varint(4, on ? 1 : 0); },
                     [&](const std::string& text) { value.Bytes(3, text); }},
               parameter);
    info.Add(1, Message().Bytes(1, name).Add(2, value));
  }
  return ForHParams("_hparams_/session_start_info", 3, info.Double(5, time));
}

// Only of a complete run: readers keep the first end that they find, also when another attempt
// follows it.
Message SessionEnd(double time) {
  constexpr int kSuccess = 1;
  return ForHParams("_hparams_/session_end_info", 4, Message().Varint(1, kSuccess).Double(2, time));
}

Message SummaryOf(const Message& value) { return Message().Add(1, value); }

class TensorBoard : public Sink {
 public:
  TensorBoard(std::filesystem::path directory, int64_t first_step)
      : directory_(std::move(directory)), file_(directory_, first_step + 1) {}

  void Write(const Event& event) override {
    auto add = [&](const Message& value) { file_.Add(event.step, event.time, SummaryOf(value)); };
    std::visit(Cases{[&](const Scalars& scalars) {
                       Message summary;
                       for (const auto& [tag, value] : scalars) summary.Add(1, Scalar(tag, value));
                       file_.Add(event.step, event.time, summary);
                     },
                     [&](const Image& image) { add(PictureOf(image)); },
                     [&](const Histogram& histogram) { add(BucketsOf(histogram)); },
                     [&](const Text& text) { add(TextOf(text)); },
                     [&](const HParams& parameters) { add(SessionStart(parameters, event.time)); },
                     [&](const Curve& curve) { WriteCurve(curve, event); },
                     [&](const RunComplete&) { add(SessionEnd(event.time)); }},
               event.content);
  }

 private:
  // A step is a whole number: it is x where every x is one, else the point's place.
  void WriteCurve(const Curve& curve, const Event& event) {
    const bool whole =
        std::all_of(curve.x.begin(), curve.x.end(), [](double x) { return x >= 0 && x < 1e15 && x == std::floor(x); });
    EventFile file(directory_ / "curves" / FileNameOf(curve.tag, event.step), 0);  // replaces an earlier attempt's
    for (size_t i = 0; i < curve.x.size(); ++i) {
      const int64_t step = whole ? static_cast<int64_t>(curve.x[i]) : static_cast<int64_t>(i);
      file.Add(step, event.time, SummaryOf(Scalar(curve.tag, curve.y[i])));
    }
  }

  std::filesystem::path directory_;
  EventFile file_;
};

}  // namespace

std::unique_ptr<Sink> OpenTensorBoard(const std::filesystem::path& directory, int64_t first_step) {
  return std::make_unique<TensorBoard>(directory, first_step);
}

}  // namespace trainyard
