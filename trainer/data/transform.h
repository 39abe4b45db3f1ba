// What is done to volumes between the file and the batch: functions, and chains of them.
//
// Each is a function of its input alone, in one thread, so that a sample has the same bits whoever makes it. What a
// random one draws comes from SampleKey::key alone.
#ifndef TRAINYARD_TRAINER_DATA_TRANSFORM_H_
#define TRAINYARD_TRAINER_DATA_TRANSFORM_H_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "trainer/data/stage_times.h"
#include "trainer/data/volume.h"

namespace trainyard {

// MONAI's ScaleIntensityRange: [from_low, from_high] becomes [to_low, to_high], and `clip` cuts at their ends.
struct IntensityWindow {
  float from_low = 0, from_high = 1;
  float to_low = 0, to_high = 1;
  bool clip = true;
};
// REQUIRES: from_low < from_high.
void ApplyWindow(Volume& volume, const IntensityWindow& window);
void Clamp(Volume& volume, float low, float high);
void ScaleIntensity(Volume& volume, float factor);

// The leading dimensions become `shape`; what follows (channels) stays. REQUIRES: no more dimensions than the volume
// has, each at least 1.
// Adaptive average pooling (torch adaptive_avg_pool3d; MONAI's Resize with mode "area"): each output is the mean of
// [floor(i n / m), ceil((i + 1) n / m)).
Volume ResizeArea(const Volume& volume, const std::vector<int64_t>& shape);
// Linear along each dimension: bilinear for two, trilinear for three (torch interpolate).
Volume ResizeLinear(const Volume& volume, const std::vector<int64_t>& shape, bool align_corners = false);

// numpy's flip and rot90 (k quarters from axis `a` towards `b`). REQUIRES: axes that the volume has; a != b.
Volume Flip(const Volume& volume, size_t axis);
Volume Rotate90(const Volume& volume, int k, size_t a, size_t b);

// Throws DataError naming the file and the first voxel that is not finite.
void RequireFinite(const Volume& volume, const std::filesystem::path& path);
// Throws DataError naming the file, its shape and the one that is expected; 0 in `shape` stands for any.
void RequireShape(const Volume& volume, const std::vector<int64_t>& shape, const std::filesystem::path& path);

// A chain, made once and then applied by any number of threads:
//
//   const auto prefix = Transforms().Window({-1000, 1000, 0, 1}).Area({256, 256, 64});
//   const auto augment = Transforms().RandomFlip(0.5, 0).RandomFlip(0.5, 1).RandomRotate90(0.5, 0, 1);
//
// The n-th random transform of a chain draws by (key, n): volumes that belong together go through chains whose random
// transforms stand at the same places, and are flipped together. A random one that is not applied changes nothing.
class Transforms {
 public:
  Transforms& Window(const IntensityWindow& window);
  Transforms& Clamp(float low, float high);
  Transforms& Area(const std::vector<int64_t>& shape);
  Transforms& Linear(const std::vector<int64_t>& shape, bool align_corners = false);
  Transforms& Flip(size_t axis);
  Transforms& Rotate90(int k, size_t a, size_t b);
  // Each with probability `p`, which takes one draw of its own.
  Transforms& RandomFlip(double p, size_t axis);
  Transforms& RandomRotate90(double p, size_t a, size_t b, int max_k = 3);  // k uniform in [1, max_k]
  Transforms& RandomScale(double p, float low, float high);                 // a factor uniform in [low, high)
  // Takes the place of a random transform that other chains have here and this one has not: nothing is done.
  Transforms& NoRandom();

  // `times`, where given, gets what it took.
  Volume operator()(Volume volume, uint64_t key = 0, StageTimes* times = nullptr) const;
  // Every transform with its numbers: what a cache of the results is known by.
  const std::string& description() const { return description_; }
  bool random() const { return num_random_ > 0; }

 private:
  using Step = std::function<Volume(Volume, uint64_t key)>;
  Transforms& Add(const std::string& description, Step step);
  // `apply` draws further from what the decision was drawn from.
  template <class Apply>
  Transforms& AddRandom(const std::string& description, double p, Apply apply);

  std::vector<Step> steps_;
  std::string description_;
  uint64_t num_random_ = 0;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_DATA_TRANSFORM_H_
