#include "trainer/data/png_file.h"

#include <spng.h>

#include <cmath>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/png_bytes.h"
#include "trainer/base/text.h"
#include "trainer/data/gzip.h"

namespace trainyard {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 30;  // of a file, and of its pixels as float32
constexpr uint32_t kLargest = 1 << 15;

[[noreturn]] void FailPng(const fs::path& path, const std::string& problem) {
  throw DataError(path.string() + ": " + problem);
}

void Require(const fs::path& path, int result) {
  if (result == SPNG_EMEM) throw std::bad_alloc();
  if (result != SPNG_OK) FailPng(path, std::string("not a good PNG file: ") + spng_strerror(result));
}

const char* RefusedColour(uint8_t type) {
  return type == SPNG_COLOR_TYPE_GRAYSCALE_ALPHA   ? "grey with transparency"
         : type == SPNG_COLOR_TYPE_TRUECOLOR_ALPHA ? "RGB with transparency"
                                                   : nullptr;
}

template <class T>
void ToFloat(std::span<const std::byte> from, std::vector<float>& to) {
  const T* samples = reinterpret_cast<const T*>(from.data());  // memory of operator new
  to.assign(samples, samples + from.size() / sizeof(T));
}

}  // namespace

PngImage ReadPng(const fs::path& path, StageTimes* times) {
  std::vector<std::byte> content;
  {
    const StageTimer timer(times ? &times->read : nullptr);
    content = ReadDataFile(path, kMostBytes);
  }
  const StageTimer timer(times ? &times->decode : nullptr);
  const std::unique_ptr<spng_ctx, decltype(&spng_ctx_free)> png(spng_ctx_new(0), spng_ctx_free);
  if (!png) throw std::bad_alloc();
  Require(path, spng_set_crc_action(png.get(), SPNG_CRC_ERROR, SPNG_CRC_ERROR));
  Require(path, spng_set_image_limits(png.get(), kLargest, kLargest));
  Require(path, spng_set_chunk_limits(png.get(), 16 << 20, 16 << 20));
  Require(path, spng_set_png_buffer(png.get(), content.data(), content.size()));
  spng_ihdr header{};
  Require(path, spng_get_ihdr(png.get(), &header));
  if (const char* refused = RefusedColour(header.color_type))
    FailPng(path, std::string(refused) + "; expected grey or RGB");
  const bool palette = header.color_type == SPNG_COLOR_TYPE_INDEXED;
  const bool small = header.color_type == SPNG_COLOR_TYPE_GRAYSCALE && header.bit_depth < 8;
  const int format = palette ? SPNG_FMT_RGB8 : small ? SPNG_FMT_G8 : SPNG_FMT_PNG;
  size_t size = 0;
  Require(path, spng_decoded_image_size(png.get(), format, &size));
  // A bit of a palette can become three bytes, one of a small grey a byte.
  const size_t grows = (palette ? 3 : 1) * (palette || small ? 8u / header.bit_depth : 1u);
  if (size > grows * MostInflated(content.size()))
    FailPng(path,
            Format("%u x %u pixels are more than its %zu bytes can hold", header.height, header.width, content.size()));
  if (const uint64_t floats = size / (header.bit_depth == 16 ? 2 : 1) * sizeof(float); floats > kMostBytes)
    FailPng(path, Format("%u x %u pixels take %s; expected at most %s", header.height, header.width,
                         HumanBytes(static_cast<double>(floats)).c_str(),
                         HumanBytes(static_cast<double>(kMostBytes)).c_str()));
  std::vector<std::byte> pixels(size);
  Require(path, spng_decode_image(png.get(), pixels.data(), size, format, 0));
  Require(path, spng_decode_chunks(png.get()));  // what stands behind the pixels is whole, too
  spng_trns transparent{};
  if (spng_get_trns(png.get(), &transparent) == SPNG_OK) FailPng(path, "a transparent colour; expected grey or RGB");
  PngImage image;
  image.bits = header.bit_depth == 16 ? 16 : 8;
  image.pixels.shape = {header.height, header.width};
  if (palette || header.color_type == SPNG_COLOR_TYPE_TRUECOLOR) image.pixels.shape.push_back(3);
  image.bits == 16 ? ToFloat<uint16_t>(pixels, image.pixels.values) : ToFloat<uint8_t>(pixels, image.pixels.values);
  return image;
}

void WritePng(const fs::path& path, const PngImage& image) {
  const auto& shape = image.pixels.shape;
  const bool rgb = shape.size() == 3 && shape[2] == 3;
  const bool sides = (shape.size() == 2 || rgb) && shape[0] <= kLargest && shape[1] <= kLargest;
  if (!sides) throw std::invalid_argument(path.string() + ": pixels of another shape than PNG has");
  const PngFormat format{static_cast<int>(shape[0]), static_cast<int>(shape[1]), rgb ? 3 : 1, image.bits};
  const float largest = image.bits == 16 ? 65535.f : 255.f;
  std::vector<uint8_t> samples;
  samples.reserve(image.pixels.values.size() * 2);
  for (float value : image.pixels.values) {
    const float rounded = std::nearbyint(value);
    if (!(rounded >= 0 && rounded <= largest))
      throw std::invalid_argument(path.string() +
                                  Format(": %g is no pixel of %d bits", static_cast<double>(value), image.bits));
    const auto sample = static_cast<uint32_t>(rounded);
    if (image.bits == 16) samples.push_back(static_cast<uint8_t>(sample >> 8));
    samples.push_back(static_cast<uint8_t>(sample & 0xff));
  }
  if (!IsPng(format, samples.size()))
    throw std::invalid_argument(path.string() + ": pixels that do not fill the image");
  WriteFileAtomic(path, PngBytes(format, samples));
}

}  // namespace trainyard
