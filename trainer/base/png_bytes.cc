#include "trainer/base/png_bytes.h"

#include <zlib.h>

#include <new>
#include <string_view>

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
std::string Rows(const PngFormat& format, std::span<const uint8_t> samples) {
  const size_t height = static_cast<size_t>(format.height), stride = samples.size() / height;
  std::string rows;
  rows.reserve(height * (stride + 1));
  for (size_t y = 0; y < height; ++y) {
    rows += '\0';
    rows.append(reinterpret_cast<const char*>(samples.data()) + y * stride, stride);
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

bool IsPng(const PngFormat& format, size_t bytes) {
  constexpr int kLargest = 1 << 15;
  return format.height >= 1 && format.height <= kLargest && format.width >= 1 && format.width <= kLargest &&
         format.channels >= 1 && format.channels <= 4 && (format.bits == 8 || format.bits == 16) &&
         bytes == size_t{1} * format.height * format.width * format.channels * (format.bits / 8);
}

std::string PngBytes(const PngFormat& format, std::span<const uint8_t> samples) {
  constexpr char kColourTypes[] = {0, 4, 2, 6};  // by channels - 1
  const std::string header =
      BigEndian(static_cast<uint32_t>(format.height)).insert(0, BigEndian(static_cast<uint32_t>(format.width))) +
      std::string{static_cast<char>(format.bits), kColourTypes[format.channels - 1], 0, 0, 0};
  return "\x89PNG\r\n\x1a\n" + Chunk("IHDR", header) + Chunk("IDAT", Deflate(Rows(format, samples))) +
         Chunk("IEND", "");
}

}  // namespace trainyard
