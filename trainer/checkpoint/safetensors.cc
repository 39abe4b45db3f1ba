#include "trainer/checkpoint/safetensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "trainer/base/error.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;
constexpr size_t kMaxHeader = 100'000'000;  // the reference reader's limit
constexpr size_t kPiece = 4 << 20;

const std::map<std::string, size_t> kDtypeBytes = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
                                                   {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
                                                   {"U32", 4},  {"F32", 4}, {"F64", 8}, {"I64", 8},     {"U64", 8}};

[[noreturn]] void Fail(const fs::path& path, size_t offset, const std::string& problem) {
  throw DataError(path.string() + ": offset " + std::to_string(offset) + ": " + problem);
}

float FromHalf(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const float sign = bits >> 15 ? -1.f : 1.f;
  if (exponent == 31) return mantissa ? NAN : sign * INFINITY;
  return sign * (exponent ? std::ldexp(1024.f + static_cast<float>(mantissa), exponent - 25)
                          : std::ldexp(static_cast<float>(mantissa), -24));
}

template <class T, class Convert>
std::vector<float> ConvertAll(std::span<const std::byte> data, Convert convert) {
  std::vector<float> values(data.size() / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T raw;
    std::memcpy(&raw, data.data() + i * sizeof(T), sizeof(T));
    values[i] = convert(raw);
  }
  return values;
}

// Discarded where it is not JSON. `twice`: a name that comes twice, of which JSON's readers take one or the other.
Json ParseHeader(const std::string& text, std::string& twice) {
  constexpr int kDepth = 3;  // names, their fields, the lists in those; what lies deeper is none of a header's
  std::set<std::string> names;
  const auto each = [&](int depth, Json::parse_event_t event, const Json& parsed) {
    if (depth == 1 && event == Json::parse_event_t::key && !names.insert(parsed.get<std::string>()).second)
      twice = parsed.get<std::string>();
    return depth <= kDepth;
  };
  return Json::parse(text, each, false);
}

// The number of elements; throws when it does not fit the file.
size_t ElementCount(const fs::path& path, const std::string& name, const Json& shape, size_t limit) {
  size_t count = 1;
  for (const Json& dim : shape) {
    if (!dim.is_number_unsigned() || dim.get<uint64_t>() > INT64_MAX)
      Fail(path, 8, name + ": shape is not a list of sizes");
  }
  if (std::ranges::find(shape, Json(0u)) != shape.end()) return 0;  // whatever the other sizes are
  for (const Json& dim : shape) {
    const auto size = dim.get<uint64_t>();
    if (count > limit / size) Fail(path, 8, name + ": shape exceeds the file");
    count *= size;
  }
  return count;
}

}  // namespace

SafetensorsOutput::SafetensorsOutput(const fs::path& path, std::span<const SafetensorsHead> heads,
                                     const std::map<std::string, std::string>& metadata, Tick tick)
    : file_(path), tick_(std::move(tick)) {
  nlohmann::ordered_json header;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const SafetensorsHead& head : heads) {
    uint64_t end = offset + sizeof(float);
    for (const int64_t size : head.shape) end = offset + (end - offset) * static_cast<uint64_t>(size);
    header[head.name] = {{"dtype", "F32"}, {"shape", head.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.is_null() ? "{}" : header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  WriteBytes(std::as_bytes(std::span(&length, 1)));
  WriteBytes(std::as_bytes(std::span(text)));
}

void SafetensorsOutput::WriteBytes(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (tick_) tick_();
    const auto piece = bytes.first(std::min(bytes.size(), kPiece));
    hash_.Update(piece);
    file_.Write(piece);
    bytes_ += piece.size();
    bytes = bytes.subspan(piece.size());
  }
}

void SafetensorsOutput::Write(std::span<const float> values) { WriteBytes(std::as_bytes(values)); }

WrittenFile SafetensorsOutput::Close() {
  file_.Close();
  return {bytes_, hash_.Digest()};
}

WrittenFile WriteSafetensors(const fs::path& path, std::span<const SafetensorsEntry> entries,
                             const std::map<std::string, std::string>& metadata, const Tick& tick) {
  std::vector<SafetensorsHead> heads;
  for (const SafetensorsEntry& entry : entries) heads.push_back({entry.name, entry.shape});
  SafetensorsOutput file(path, heads, metadata, tick);
  for (const SafetensorsEntry& entry : entries) file.Write(entry.data);
  return file.Close();
}

SafetensorsFile::SafetensorsFile(InputFile file) : file_(std::move(file)) {
  const fs::path& path = file_.path();
  uint64_t length = 0;
  if (file_.size() < 8) Fail(path, 0, "not a safetensors file: shorter than 8 bytes");
  file_.ReadAt(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > kMaxHeader || length > file_.size() - 8)
    Fail(path, 0, "header length " + std::to_string(length) + " exceeds the file");
  std::string text(length, ' ');
  file_.ReadAt(8, std::as_writable_bytes(std::span(text)));
  std::string twice;
  const Json header = ParseHeader(text, twice);
  if (!twice.empty()) Fail(path, 8, twice + ": two tensors of that name");
  if (!header.is_object()) Fail(path, 8, "the header is not a JSON object");
  const size_t data_size = file_.size() - 8 - length;
  std::vector<std::pair<uint64_t, uint64_t>> extents;
  for (const auto& [name, info] : header.items()) {
    if (name == "__metadata__") {
      for (const auto& [key, value] : info.items()) {
        if (value.is_string()) metadata_[key] = value.get<std::string>();
      }
      continue;
    }
    if (std::ranges::any_of(name, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }))
      Fail(path, 8, "a tensor's name has control characters");
    if (!info.is_object() || !info.contains("dtype") || !info.contains("shape") || !info.contains("data_offsets") ||
        !info["dtype"].is_string() || !info["shape"].is_array() || !info["data_offsets"].is_array() ||
        info["data_offsets"].size() != 2 || !info["data_offsets"][0].is_number_unsigned() ||
        !info["data_offsets"][1].is_number_unsigned()) {
      Fail(path, 8, name + ": needs dtype, shape and data_offsets");
    }
    const auto begin = info["data_offsets"][0].get<uint64_t>(), end = info["data_offsets"][1].get<uint64_t>();
    const auto dtype = kDtypeBytes.find(info["dtype"].get<std::string>());
    if (dtype == kDtypeBytes.end()) Fail(path, 8, name + ": unknown dtype " + info["dtype"].dump());
    if (begin > end || end > data_size) Fail(path, 8, name + ": data_offsets lie outside the file");
    if (ElementCount(path, name, info["shape"], data_size) * dtype->second != end - begin)
      Fail(path, 8, name + ": shape and data_offsets disagree");
    extents.emplace_back(begin, end);
    tensors_[name] = {dtype->first, info["shape"].get<std::vector<int64_t>>(), 8 + length + begin, end - begin};
  }
  std::sort(extents.begin(), extents.end());
  uint64_t expected = 0;
  for (const auto& [begin, end] : extents) {
    if (begin != expected) Fail(path, 8 + length + std::min(begin, expected), "tensors overlap or leave a hole");
    expected = end;
  }
  if (expected != data_size) Fail(path, 8 + length + expected, "the data goes on behind the last tensor");
}

const SafetensorsFile::Tensor& SafetensorsFile::At(const std::string& name) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) throw DataError(file_.path().string() + ": no tensor " + name);
  return it->second;
}

void SafetensorsFile::Read(const std::string& name, int64_t begin, std::span<float> to, const Tick& tick) const {
  const Tensor& tensor = At(name);
  const auto count = static_cast<int64_t>(tensor.bytes / sizeof(float)), size = static_cast<int64_t>(to.size());
  if (tensor.dtype != "F32" || begin < 0 || size > count || begin > count - size)
    throw DataError(file_.path().string() + ": " + name + " does not hold values " + std::to_string(begin) + " to " +
                    std::to_string(begin + size) + " of F32");
  ReadFrom(tensor.begin + static_cast<uint64_t>(begin) * sizeof(float), std::as_writable_bytes(to), tick);
}

void SafetensorsFile::ReadFrom(uint64_t at, std::span<std::byte> to, const Tick& tick) const {
  while (!to.empty()) {
    if (tick) tick();
    const auto piece = to.first(std::min(to.size(), kPiece));
    file_.ReadAt(at, piece);
    at += piece.size();
    to = to.subspan(piece.size());
  }
}

std::vector<float> SafetensorsFile::Floats(const std::string& name, const Tick& tick) const {
  const Tensor& tensor = At(name);
  if (tensor.dtype == "F32") {
    std::vector<float> values(tensor.bytes / sizeof(float));
    ReadFrom(tensor.begin, std::as_writable_bytes(std::span(values)), tick);
    return values;
  }
  std::vector<std::byte> data(tensor.bytes);
  ReadFrom(tensor.begin, data, tick);
  if (tensor.dtype == "F64") return ConvertAll<double>(data, [](double x) { return static_cast<float>(x); });
  if (tensor.dtype == "F16") return ConvertAll<uint16_t>(data, FromHalf);
  if (tensor.dtype == "BF16") {
    return ConvertAll<uint16_t>(data, [](uint16_t x) {
      const uint32_t bits = static_cast<uint32_t>(x) << 16;
      float y;
      std::memcpy(&y, &bits, 4);
      return y;
    });
  }
  throw DataError(file_.path().string() + ": " + name + " has dtype " + tensor.dtype +
                  ", expected a floating-point type");
}

std::vector<float> SafetensorsFile::Numbers(const std::string& name, const Tick& tick) const {
  const Tensor& tensor = At(name);
  if (tensor.dtype != "I64" && tensor.dtype != "I32") return Floats(name, tick);
  std::vector<std::byte> data(tensor.bytes);
  ReadFrom(tensor.begin, data, tick);
  if (tensor.dtype == "I64") return ConvertAll<int64_t>(data, [](int64_t x) { return static_cast<float>(x); });
  return ConvertAll<int32_t>(data, [](int32_t x) { return static_cast<float>(x); });
}

}  // namespace trainyard
