// What a run tells its sinks (docs/formats.md says how each of them writes it).
#ifndef TRAINYARD_TRAINER_METRICS_EVENT_H_
#define TRAINYARD_TRAINER_METRICS_EVENT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace trainyard {

// Tags are paths such as "train/loss".
using Scalars = std::vector<std::pair<std::string, double>>;

// Rows of pixels of 1 (grey), 2 (grey and alpha), 3 (RGB) or 4 (RGBA) bytes.
struct Image {
  std::string tag;
  int height = 0, width = 0, channels = 3;
  std::vector<uint8_t> pixels;
};

// counts[i] values lie in (limits[i - 1], limits[i]]; the first bucket begins at `min`.
struct Histogram {
  std::string tag;
  double min = 0, max = 0, count = 0, sum = 0, sum_squares = 0;
  std::vector<double> limits, counts;
};

struct Text {
  std::string tag, text;  // Markdown
};

// The hyperparameters of the run, by their names in the configuration.
using HParam = std::variant<bool, double, std::string>;
struct HParams {
  std::vector<std::pair<std::string, HParam>> values;
};

// y over x; both of one length.
struct Curve {
  std::string tag;
  std::vector<double> x, y;
};

// The run has come to its end, with everything that it should have done.
struct RunComplete {};

struct Event {
  int64_t attempt = 0, step = 0;
  double time = 0;  // seconds since the epoch
  std::variant<Scalars, Image, Histogram, Text, HParams, Curve, RunComplete> content;
};
using EventContent = decltype(Event::content);

// About what the event takes in memory.
size_t BytesOf(const Event& event);

// A name for a file that holds what `tag` was after `step`: "val_grid-step-00000400".
std::string FileNameOf(const std::string& tag, int64_t step);

// Of the finite ones among `values`, in `buckets` (at least 1) of equal width.
Histogram HistogramOf(std::string tag, std::span<const double> values, int buckets);

// std::visit with a lambda per alternative.
template <class... F>
struct Cases : F... {
  using F::operator()...;
};
template <class... F>
Cases(F...) -> Cases<F...>;

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_METRICS_EVENT_H_
