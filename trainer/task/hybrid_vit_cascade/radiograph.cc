#include "trainer/task/hybrid_vit_cascade/radiograph.h"

#include <algorithm>
#include <cmath>

namespace trainyard::hvc {

Radiographs Radiograph(std::span<const int16_t> hu, int64_t size, double extent_mm, const IntensityMap& map) {
  const auto pixels = static_cast<size_t>(size * size);
  Radiographs images{std::vector<double>(pixels), std::vector<double>(pixels)};
  const double voxel_mm = extent_mm / static_cast<double>(size);
  size_t i = 0;
  for (int64_t d = 0; d < size; ++d) {
    for (int64_t h = 0; h < size; ++h) {
      for (int64_t w = 0; w < size; ++w, ++i) {
        const double value = std::clamp<double>(hu[i], map.hu_low, map.hu_high);
        const double mu = map.mu_water * (1 + value / 1000) * voxel_mm;
        images.front[static_cast<size_t>(h * size + w)] += mu;
        images.side[static_cast<size_t>(h * size + d)] += mu;
      }
    }
  }
  for (std::vector<double>* image : {&images.front, &images.side}) {
    for (double& value : *image) value = std::clamp(value / map.drr_window, 0.0, 1.0);
  }
  return images;
}

std::vector<double> ScaledImage(std::span<const double> image, int64_t size, int64_t pixels) {
  struct Place {
    int64_t low, high;
    double share;  // of high
  };
  std::vector<Place> places;
  for (int64_t i = 0; i < pixels; ++i) {
    const double at = (static_cast<double>(i) + 0.5) * static_cast<double>(size) / static_cast<double>(pixels) - 0.5;
    const double held = std::max(at, 0.0);
    const auto low = std::min(static_cast<int64_t>(held), size - 1);
    places.push_back({low, std::min(low + 1, size - 1), held - static_cast<double>(low)});
  }
  std::vector<double> scaled;
  const auto value = [&](int64_t row, int64_t column) { return image[static_cast<size_t>(row * size + column)]; };
  for (const Place& y : places) {
    for (const Place& x : places) {
      const double top = value(y.low, x.low) * (1 - x.share) + value(y.low, x.high) * x.share;
      const double bottom = value(y.high, x.low) * (1 - x.share) + value(y.high, x.high) * x.share;
      scaled.push_back(top * (1 - y.share) + bottom * y.share);
    }
  }
  return scaled;
}

}  // namespace trainyard::hvc
