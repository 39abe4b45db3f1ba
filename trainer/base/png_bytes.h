// Pixels as the bytes of a PNG file (PNG specification, third edition).
#ifndef TRAINYARD_TRAINER_BASE_PNG_BYTES_H_
#define TRAINYARD_TRAINER_BASE_PNG_BYTES_H_

#include <cstdint>
#include <span>
#include <string>

namespace trainyard {

struct PngFormat {
  int height = 0, width = 0;  // 1 to 32,768
  int channels = 1;           // 1 grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha
  int bits = 8;               // of a sample: 8, or 16 with the high byte first
};

// Whether there are such files, with so many bytes of samples.
bool IsPng(const PngFormat& format, size_t bytes);

// `samples`: row by row, channels innermost. REQUIRES: IsPng(format, samples.size()).
std::string PngBytes(const PngFormat& format, std::span<const uint8_t> samples);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_BASE_PNG_BYTES_H_
