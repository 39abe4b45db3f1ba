// What image readers give and transforms take: float32 values in memory, row-major.
#ifndef TRAINYARD_TRAINER_DATA_VOLUME_H_
#define TRAINYARD_TRAINER_DATA_VOLUME_H_

#include <cstdint>
#include <vector>

namespace trainyard {

// The last dimension is contiguous. A volume of NIfTI is (X, Y, Z), as nibabel and MONAI index it; an image is
// (height, width) or (height, width, channels).
struct Volume {
  std::vector<int64_t> shape;
  std::vector<float> values;

  int64_t size() const { return static_cast<int64_t>(values.size()); }
  bool operator==(const Volume&) const = default;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_DATA_VOLUME_H_
