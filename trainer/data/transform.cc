#include "trainer/data/transform.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "trainer/base/error.h"
#include "trainer/base/random.h"
#include "trainer/base/text.h"

namespace trainyard {
namespace {

size_t Product(std::span<const int64_t> extents) {
  size_t product = 1;
  for (int64_t extent : extents) product *= static_cast<size_t>(extent);
  return product;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::vector<std::string> parts;
  for (int64_t extent : shape) parts.push_back(extent > 0 ? std::to_string(extent) : "any");
  return Join(parts, " x ");
}

// One dimension of a volume: `outer` blocks of `n` rows of `inner` values.
struct Axis {
  size_t outer, n, inner;
  Axis(const std::vector<int64_t>& shape, size_t axis)
      : outer(Product(std::span(shape).first(axis))),
        n(static_cast<size_t>(shape[axis])),
        inner(Product(std::span(shape).subspan(axis + 1))) {}
};

// A volume whose dimension `axis` has `size` rows, each written by row(from, i, to): `from` is a block's first row.
template <class Row>
Volume MapRows(const Volume& volume, size_t axis, int64_t size, const Row& row) {
  const Axis in(volume.shape, axis);
  Volume out{volume.shape, {}};
  out.shape[axis] = size;
  const auto rows = static_cast<size_t>(size);
  out.values.resize(in.outer * rows * in.inner);
  for (size_t o = 0; o < in.outer; ++o) {
    const float* from = volume.values.data() + o * in.n * in.inner;
    float* to = out.values.data() + o * rows * in.inner;
    for (size_t i = 0; i < rows; ++i) row(from, i, to + i * in.inner);
  }
  return out;
}

// The mean over a box is the mean of means along each side, as every row of a window has the same weight.
Volume AreaAlong(const Volume& volume, size_t axis, int64_t size) {
  const auto n = static_cast<size_t>(volume.shape[axis]), m = static_cast<size_t>(size);
  const size_t inner = Axis(volume.shape, axis).inner;
  return MapRows(volume, axis, size, [=](const float* from, size_t i, float* to) {
    const size_t begin = i * n / m, end = ((i + 1) * n + m - 1) / m;
    const auto count = static_cast<float>(end - begin);
    if (inner == 1) {
      float sum = from[begin];
      for (size_t k = begin + 1; k < end; ++k) sum += from[k];
      *to = sum / count;
      return;
    }
    std::memcpy(to, from + begin * inner, inner * sizeof(float));
    for (size_t k = begin + 1; k < end; ++k) {
      const float* more = from + k * inner;
      for (size_t x = 0; x < inner; ++x) to[x] += more[x];
    }
    for (size_t x = 0; x < inner; ++x) to[x] /= count;
  });
}

// Where PyTorch looks for an output's two neighbours, in float32 as it does
// (aten/src/ATen/native/UpSample.h, area_pixel_compute_source_index).
struct Neighbours {
  size_t low, high;
  float weight;  // of `high`
};
std::vector<Neighbours> NeighboursOf(int64_t n, int64_t m, bool align_corners) {
  const float scale = !align_corners ? static_cast<float>(n) / static_cast<float>(m)
                      : m > 1        ? static_cast<float>(n - 1) / static_cast<float>(m - 1)
                                     : 0.f;
  std::vector<Neighbours> all;
  for (int64_t i = 0; i < m; ++i) {
    const auto at = static_cast<float>(i);
    const float source = std::max(0.f, align_corners ? scale * at : scale * (at + 0.5f) - 0.5f);
    const int64_t low = std::min(static_cast<int64_t>(source), n - 1);
    const float weight = std::clamp(source - static_cast<float>(low), 0.f, 1.f);
    all.push_back({static_cast<size_t>(low), static_cast<size_t>(std::min(low + 1, n - 1)), weight});
  }
  return all;
}

Volume LinearAlong(const Volume& volume, size_t axis, int64_t size, bool align_corners) {
  const auto neighbours = NeighboursOf(volume.shape[axis], size, align_corners);
  const size_t inner = Axis(volume.shape, axis).inner;
  return MapRows(volume, axis, size, [&](const float* from, size_t i, float* to) {
    const Neighbours& at = neighbours[i];
    const float *low = from + at.low * inner, *high = from + at.high * inner;
    const float high_weight = at.weight, low_weight = 1.f - high_weight;
    for (size_t x = 0; x < inner; ++x) to[x] = low_weight * low[x] + high_weight * high[x];
  });
}

template <class Along>
Volume Resize(const Volume& volume, const std::vector<int64_t>& shape, const Along& along) {
  const Volume* from = &volume;
  Volume result;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (from->shape[axis] == shape[axis]) continue;
    result = along(*from, axis, shape[axis]);
    from = &result;
  }
  if (from == &volume) return volume;
  return result;
}

// A view that is walked in its own order: where value (0, 0, ...) lies, and how far one step of each dimension goes.
struct View {
  std::vector<int64_t> shape, strides;
  int64_t origin = 0;

  explicit View(const Volume& volume) : shape(volume.shape), strides(volume.shape.size(), 1) {
    for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  }
  void Reverse(size_t axis) {
    origin += (shape[axis] - 1) * strides[axis];
    strides[axis] = -strides[axis];
  }
  void Exchange(size_t a, size_t b) {
    std::swap(shape[a], shape[b]);
    std::swap(strides[a], strides[b]);
  }
};

float* Copy(const View& view, size_t axis, const float* from, float* to) {
  const int64_t n = view.shape[axis], stride = view.strides[axis];
  if (axis + 1 < view.shape.size()) {
    for (int64_t i = 0; i < n; ++i) to = Copy(view, axis + 1, from + i * stride, to);
    return to;
  }
  if (stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = from[i * stride];
  }
  return to + n;
}

Volume Materialized(const Volume& volume, const View& view) {
  Volume out{view.shape, {}};
  out.values.resize(volume.values.size());
  if (!out.values.empty()) Copy(view, 0, volume.values.data() + view.origin, out.values.data());
  return out;
}

}  // namespace

void ApplyWindow(Volume& volume, const IntensityWindow& w) {
  const float width = w.from_high - w.from_low, range = w.to_high - w.to_low;
  for (float& value : volume.values) value = (value - w.from_low) / width * range + w.to_low;
  if (w.clip) Clamp(volume, std::min(w.to_low, w.to_high), std::max(w.to_low, w.to_high));
}

void Clamp(Volume& volume, float low, float high) {
  for (float& value : volume.values) value = value < low ? low : value > high ? high : value;  // a nan stays
}

void ScaleIntensity(Volume& volume, float factor) {
  for (float& value : volume.values) value *= factor;
}

Volume ResizeArea(const Volume& volume, const std::vector<int64_t>& shape) { return Resize(volume, shape, AreaAlong); }

Volume ResizeLinear(const Volume& volume, const std::vector<int64_t>& shape, bool align_corners) {
  return Resize(volume, shape, [align_corners](const Volume& v, size_t axis, int64_t size) {
    return LinearAlong(v, axis, size, align_corners);
  });
}

Volume Flip(const Volume& volume, size_t axis) {
  View view(volume);
  view.Reverse(axis);
  return Materialized(volume, view);
}

Volume Rotate90(const Volume& volume, int k, size_t a, size_t b) {
  View view(volume);
  const int quarters = (k % 4 + 4) % 4;
  if (quarters == 1 || quarters == 2) view.Reverse(b);
  if (quarters == 2 || quarters == 3) view.Reverse(a);
  if (quarters % 2 == 1) view.Exchange(a, b);
  return Materialized(volume, view);
}

void RequireFinite(const Volume& volume, const std::filesystem::path& path) {
  const auto bad = std::ranges::find_if(volume.values, [](float value) { return !std::isfinite(value); });
  if (bad == volume.values.end()) return;
  std::vector<std::string> index;
  for (size_t axis = 0; axis < volume.shape.size(); ++axis) {
    const Axis at(volume.shape, axis);
    index.push_back(std::to_string(static_cast<size_t>(bad - volume.values.begin()) / at.inner % at.n));
  }
  throw DataError(path.string() + ": voxel (" + Join(index) + ") is " + (std::isnan(*bad) ? "nan" : "infinite") +
                  "; expected a number");
}

void RequireShape(const Volume& volume, const std::vector<int64_t>& shape, const std::filesystem::path& path) {
  const bool fits =
      std::ranges::equal(volume.shape, shape, [](int64_t has, int64_t wants) { return wants == 0 || has == wants; });
  if (!fits) throw DataError(path.string() + ": " + ShapeText(volume.shape) + "; expected " + ShapeText(shape));
}

Transforms& Transforms::Add(const std::string& description, Step step) {
  description_ += (description_.empty() ? "" : ", ") + description;
  steps_.push_back(std::move(step));
  return *this;
}

template <class Apply>
Transforms& Transforms::AddRandom(const std::string& description, double p, Apply apply) {
  return Add(description, [p, apply, place = num_random_++](Volume volume, uint64_t key) {
    KeyedRandom random(key, "transform", place);
    return random.UniformDouble() < p ? apply(std::move(volume), random) : std::move(volume);
  });
}

Transforms& Transforms::Window(const IntensityWindow& w) {
  return Add(Format("window %.9g %.9g %.9g %.9g %d", static_cast<double>(w.from_low), static_cast<double>(w.from_high),
                    static_cast<double>(w.to_low), static_cast<double>(w.to_high), w.clip),
             [w](Volume volume, uint64_t) {
               ApplyWindow(volume, w);
               return volume;
             });
}

Transforms& Transforms::Clamp(float low, float high) {
  return Add(Format("clamp %.9g %.9g", static_cast<double>(low), static_cast<double>(high)),
             [low, high](Volume volume, uint64_t) {
               trainyard::Clamp(volume, low, high);
               return volume;
             });
}

Transforms& Transforms::Area(const std::vector<int64_t>& shape) {
  return Add("area " + ShapeText(shape), [shape](const Volume& volume, uint64_t) { return ResizeArea(volume, shape); });
}

Transforms& Transforms::Linear(const std::vector<int64_t>& shape, bool align_corners) {
  return Add("linear " + ShapeText(shape) + (align_corners ? " corners" : ""),
             [=](const Volume& volume, uint64_t) { return ResizeLinear(volume, shape, align_corners); });
}

Transforms& Transforms::Flip(size_t axis) {
  return Add(Format("flip %zu", axis), [=](const Volume& volume, uint64_t) { return trainyard::Flip(volume, axis); });
}

Transforms& Transforms::Rotate90(int k, size_t a, size_t b) {
  return Add(Format("rotate90 %d %zu %zu", k, a, b),
             [=](const Volume& volume, uint64_t) { return trainyard::Rotate90(volume, k, a, b); });
}

Transforms& Transforms::RandomFlip(double p, size_t axis) {
  return AddRandom(Format("random flip %g %zu", p, axis), p,
                   [axis](const Volume& volume, KeyedRandom&) { return trainyard::Flip(volume, axis); });
}

Transforms& Transforms::RandomRotate90(double p, size_t a, size_t b, int max_k) {
  return AddRandom(Format("random rotate90 %g %zu %zu %d", p, a, b, max_k), p,
                   [=](const Volume& volume, KeyedRandom& random) {
                     const auto k = 1 + static_cast<int>(random.Below(static_cast<uint64_t>(max_k)));
                     return trainyard::Rotate90(volume, k, a, b);
                   });
}

Transforms& Transforms::RandomScale(double p, float low, float high) {
  return AddRandom(Format("random scale %g %.9g %.9g", p, static_cast<double>(low), static_cast<double>(high)), p,
                   [=](Volume volume, KeyedRandom& random) {
                     ScaleIntensity(volume, low + (high - low) * random.Uniform());
                     return volume;
                   });
}

Transforms& Transforms::NoRandom() {
  ++num_random_;
  description_ += (description_.empty() ? "" : ", ") + std::string("nothing");
  return *this;
}

Volume Transforms::operator()(Volume volume, uint64_t key, StageTimes* times) const {
  const StageTimer timer(times ? &times->transform : nullptr);
  for (const Step& step : steps_) volume = step(std::move(volume), key);
  return volume;
}

}  // namespace trainyard
