// NPY version 1.0 files (numpy.lib.format) of integers and booleans.
#ifndef TRAINYARD_TRAINER_DATA_NPY_H_
#define TRAINYARD_TRAINER_DATA_NPY_H_

#include <filesystem>
#include <span>

#include "trainer/data/array.h"

namespace trainyard {

// Reads bool, (u)int8..64 in little-endian C order, as int32.
// Throws DataError naming file, offset and problem; StorageError where the file system gives no answer.
IntArray ReadNpy(const std::filesystem::path& path);

// Writes '<i4', or '|b1' with `as_bool`. Throws StorageError.
void WriteNpy(const std::filesystem::path& path, std::span<const int64_t> shape, std::span<const int32_t> values,
              bool as_bool = false);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_DATA_NPY_H_
