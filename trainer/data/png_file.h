// PNG files (PNG specification, third edition), through libspng.
#ifndef TRAINYARD_TRAINER_DATA_PNG_FILE_H_
#define TRAINYARD_TRAINER_DATA_PNG_FILE_H_

#include <filesystem>

#include "trainer/data/stage_times.h"
#include "trainer/data/volume.h"

namespace trainyard {

struct PngImage {
  Volume pixels;  // (height, width) for grey, (height, width, 3) for RGB; the file's own numbers
  int bits = 8;   // 8: pixels to 255; 16: to 65535
};

// Grey and RGB of 8 or 16 bits, interlaced or not; grey of 1, 2 or 4 bits becomes 8, a palette becomes RGB. No gamma is
// applied.
// Throws DataError naming file and problem: truncated, a checksum that does not fit, transparency (which of two images
// is meant is not known), sides above 32,768.
PngImage ReadPng(const std::filesystem::path& path, StageTimes* times = nullptr);

// Rounds to nearest even; in one step. Throws StorageError, or std::invalid_argument for pixels that are outside of the
// bits, or of another shape than above.
void WritePng(const std::filesystem::path& path, const PngImage& image);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_DATA_PNG_FILE_H_
