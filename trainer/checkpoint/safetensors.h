// safetensors files (8-byte little-endian header length,
// JSON header, data), written and read on plain memory.
#ifndef TRAINYARD_TRAINER_CHECKPOINT_SAFETENSORS_H_
#define TRAINYARD_TRAINER_CHECKPOINT_SAFETENSORS_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace trainyard {

struct SafetensorsEntry {
  std::string name;
  std::vector<int64_t> shape;
  std::span<const float> data;  // as many as the shape says
};

struct WrittenFile {
  uint64_t bytes = 0;
  uint64_t xxh3 = 0;
};

// Writes float32 tensors and makes the file durable. Data starts at a multiple of 8 bytes.
// Throws StorageError; what was written then stays, under the name `path`.
WrittenFile WriteSafetensors(const std::filesystem::path& path, std::span<const SafetensorsEntry> entries,
                             const std::map<std::string, std::string>& metadata);

// A file read into memory and checked: offsets inside the file, sizes that fit the shapes, no
// overlap and no hole.
class SafetensorsFile {
 public:
  struct Tensor {
    std::string dtype;
    std::vector<int64_t> shape;
    std::span<const std::byte> data;
  };
  // Throws DataError naming file, offset and problem; StorageError when it cannot be read.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  // The tensor's values as float32: F32, F64, F16 and BF16 are converted. Throws DataError.
  std::vector<float> Floats(const std::string& name) const;

 private:
  std::filesystem::path path_;
  std::string content_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_CHECKPOINT_SAFETENSORS_H_
