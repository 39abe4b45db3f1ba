// An integer array read from a file: what the history readers hand over.
#ifndef TRAINYARD_TRAINER_DATA_ARRAY_H_
#define TRAINYARD_TRAINER_DATA_ARRAY_H_

#include <cstdint>
#include <vector>

namespace trainyard {

struct IntArray {
  std::vector<int64_t> shape;
  std::vector<int32_t> values;  // row-major
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_DATA_ARRAY_H_
