#include "trainer/data/npy.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/input_file.h"
#include "trainer/base/text.h"

namespace trainyard {
namespace {

// More is no array of ours, and would take 8 GiB: a file may be of holes.
constexpr size_t kMaxElements = size_t{1} << 31;
constexpr size_t kPiece = size_t{1} << 17;   // elements that are read at once
constexpr uint64_t kMaxStart = 10 + 0xffff;  // magic, the header's length, and the header
constexpr std::string_view kMagic{"\x93NUMPY\x01\x00", 8};

[[noreturn]] void Fail(const std::filesystem::path& path, size_t offset, const std::string& problem) {
  throw DataError(path.string() + ": offset " + std::to_string(offset) + ": " + problem);
}

// The text after `key` in the header's Python dictionary.
std::string HeaderValue(const std::filesystem::path& path, const std::string& header, const std::string& key, char open,
                        char close) {
  const size_t at = header.find("'" + key + "'");
  const size_t begin = at == std::string::npos ? at : header.find(open, at + key.size() + 2);
  const size_t end = begin == std::string::npos ? begin : header.find(close, begin + 1);
  if (end == std::string::npos) Fail(path, 10, "header has no " + key);
  return header.substr(begin + 1, end - begin - 1);
}

// False when a value does not fit.
template <class T>
bool Convert(const char* data, std::span<int32_t> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, data + i * sizeof(T), sizeof(T));
    if (!std::in_range<int32_t>(value)) return false;
    values[i] = static_cast<int32_t>(value);
  }
  return true;
}

struct ConvertFrom {
  const char* type;
  size_t size;
  bool (*run)(const char* data, std::span<int32_t> values);
};
constexpr ConvertFrom kConversions[] = {
    {"|b1", 1, Convert<uint8_t>},  {"|u1", 1, Convert<uint8_t>},  {"|i1", 1, Convert<int8_t>},
    {"<i2", 2, Convert<int16_t>},  {"<u2", 2, Convert<uint16_t>}, {"<i4", 4, Convert<int32_t>},
    {"<u4", 4, Convert<uint32_t>}, {"<i8", 8, Convert<int64_t>},  {"<u8", 8, Convert<uint64_t>}};

}  // namespace

IntArray ReadNpy(const std::filesystem::path& path) try {
  const fs::file_status there = LookAt(path);
  if (!fs::exists(there)) throw DataError(path.string() + ": no such file");
  // A pipe or a device may never end, or never begin.
  if (!fs::is_regular_file(there)) throw DataError(path.string() + ": not a file");
  const InputFile file(path);
  std::string start(static_cast<size_t>(std::min(file.size(), kMaxStart)), '\0');
  file.ReadAt(0, std::as_writable_bytes(std::span(start)));
  if (!start.starts_with(kMagic)) Fail(path, 0, "not an NPY file of version 1.0");
  if (start.size() < 10) Fail(path, start.size(), "truncated header");
  const size_t header_size =
      static_cast<unsigned char>(start[8]) | static_cast<size_t>(static_cast<unsigned char>(start[9])) << 8;
  if (start.size() < 10 + header_size) Fail(path, start.size(), "truncated header");
  const std::string header = start.substr(10, header_size);
  const std::string type = HeaderValue(path, header, "descr", '\'', '\'');
  if (header.find("'fortran_order': False") == std::string::npos) Fail(path, 10, "only C order is read");
  IntArray array;
  size_t count = 1;
  for (const std::string& part : Split(HeaderValue(path, header, "shape", '(', ')'), ',')) {
    if (part.find_first_not_of(' ') == std::string::npos) continue;
    const long long dim = std::strtoll(part.c_str(), nullptr, 10);
    if (dim < 0) Fail(path, 10, "negative dimension");
    array.shape.push_back(dim);
    if (dim != 0 && count > kMaxElements / static_cast<size_t>(dim)) Fail(path, 10, "its shape is absurd");
    count *= static_cast<size_t>(dim);
  }
  const ConvertFrom* convert = nullptr;
  for (const ConvertFrom& candidate : kConversions) {
    if (type == candidate.type) convert = &candidate;
  }
  if (!convert) Fail(path, 10, "type " + type + " is not read; expected a boolean or a little-endian integer");
  const size_t begin = 10 + header_size, available = (file.size() - begin) / convert->size;
  if (available < count) Fail(path, file.size(), Format("truncated: %zu of %zu values", available, count));
  array.values.resize(count);
  std::string content;
  for (size_t at = 0; at < count; at += kPiece) {
    const std::span<int32_t> values = std::span(array.values).subspan(at, std::min(kPiece, count - at));
    content.resize(values.size() * convert->size);
    file.ReadAt(begin + at * convert->size, std::as_writable_bytes(std::span(content)));
    if (!convert->run(content.data(), values)) Fail(path, begin + at * convert->size, "a value does not fit 32 bits");
  }
  return array;
} catch (const RefusedPathError& refused) {
  throw DataError(refused.what());
}

void WriteNpy(const std::filesystem::path& path, std::span<const int64_t> shape, std::span<const int32_t> values,
              bool as_bool) {
  std::string dims;
  for (int64_t dim : shape) dims += std::to_string(dim) + ", ";
  std::string header =
      Format("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", as_bool ? "|b1" : "<i4", dims.c_str());
  header.append(63 - (10 + header.size()) % 64, ' ');  // The data starts at a multiple of 64.
  header += '\n';
  OutputFile file(path);
  file.Write(kMagic);
  const char size[2] = {static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  file.Write(std::string_view(size, 2));
  file.Write(header);
  if (as_bool) {
    const std::string bytes(values.begin(), values.end());
    file.Write(bytes);
  } else {
    file.Write(std::as_bytes(values));
  }
  file.Close();
}

}  // namespace trainyard
