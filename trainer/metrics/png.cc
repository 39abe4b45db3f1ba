#include "trainer/metrics/png.h"

#include <zlib.h>

#include <stdexcept>
#include <string_view>

#include "trainer/base/text.h"

namespace trainyard {
namespace {

std::string BigEndian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

// Length, type, data, CRC-32 of type and data (PNG specification, 5.3).
std::string Chunk(const std::string& type, std::string_view data) {
  const std::string body = type + std::string(data);
  const uLong crc = crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return BigEndian(static_cast<uint32_t>(data.size())) + body + BigEndian(static_cast<uint32_t>(crc));
}

// Every row begins with its filter: 0, none.
std::string Rows(const Image& image) {
  const size_t stride = static_cast<size_t>(image.width) * static_cast<size_t>(image.channels);
  std::string rows;
  rows.reserve(static_cast<size_t>(image.height) * (stride + 1));
  for (size_t y = 0; y < static_cast<size_t>(image.height); ++y) {
    rows += '\0';
    rows.append(reinterpret_cast<const char*>(image.pixels.data()) + y * stride, stride);
  }
  return rows;
}

std::string Deflate(const std::string& bytes) {
  std::string out(compressBound(static_cast<uLong>(bytes.size())), '\0');
  uLongf size = static_cast<uLongf>(out.size());
  if (compress(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()),
               static_cast<uLong>(bytes.size())) != Z_OK)
    throw std::bad_alloc();  // its only other outcome with a buffer of that size
  out.resize(size);
  return out;
}

}  // namespace

std::string EncodePng(const Image& image) {
  constexpr int kLargest = 1 << 15;
  constexpr char kColourTypes[] = {0, 4, 2, 6};  // by channels - 1
  const bool sizes = image.height >= 1 && image.height <= kLargest && image.width >= 1 && image.width <= kLargest &&
                     image.channels >= 1 && image.channels <= 4;
  if (!sizes || image.pixels.size() != size_t{1} * image.height * image.width * image.channels)
    throw std::invalid_argument(Format("image %s: %d x %d x %d pixels, and %zu bytes", image.tag.c_str(), image.height,
                                       image.width, image.channels, image.pixels.size()));
  const std::string header =
      BigEndian(static_cast<uint32_t>(image.height)).insert(0, BigEndian(static_cast<uint32_t>(image.width))) +
      std::string{8, kColourTypes[image.channels - 1], 0, 0, 0};
  return "\x89PNG\r\n\x1a\n" + Chunk("IHDR", header) + Chunk("IDAT", Deflate(Rows(image))) + Chunk("IEND", "");
}

}  // namespace trainyard
