// safetensors files (8-byte little-endian header length,
// JSON header, data), from and into plain memory.
#ifndef TRAINYARD_TRAINER_CHECKPOINT_SAFETENSORS_H_
#define TRAINYARD_TRAINER_CHECKPOINT_SAFETENSORS_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trainer/base/file.h"
#include "trainer/base/hash.h"
#include "trainer/base/input_file.h"

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

struct SafetensorsHead {
  std::string name;
  std::vector<int64_t> shape;
};

// A file of float32 tensors, written from front to back. Data starts at a multiple of 8 bytes. Throws StorageError;
// what was written then stays, under the name `path`.
class SafetensorsOutput {
 public:
  SafetensorsOutput(const std::filesystem::path& path, std::span<const SafetensorsHead> heads,
                    const std::map<std::string, std::string>& metadata, Tick tick = {});
  // The values of the next tensor, or a piece of them. REQUIRES: together as many as its shape says.
  void Write(std::span<const float> values);
  // Makes the file durable. REQUIRES: every tensor was written.
  WrittenFile Close();

 private:
  void WriteBytes(std::span<const std::byte> bytes);

  OutputFile file_;
  Tick tick_;
  Xxh3Stream hash_;
  uint64_t bytes_ = 0;
};

// The same for tensors that are all at hand.
WrittenFile WriteSafetensors(const std::filesystem::path& path, std::span<const SafetensorsEntry> entries,
                             const std::map<std::string, std::string>& metadata, const Tick& tick = {});

// An open file whose header is checked: offsets inside the file, sizes that fit the shapes, no
// overlap and no hole. Only what is asked for is read.
class SafetensorsFile {
 public:
  struct Tensor {
    std::string dtype;
    std::vector<int64_t> shape;
    uint64_t begin = 0, bytes = 0;  // in the file
  };
  // Throws DataError naming file, offset and problem; StorageError when it cannot be read.
  explicit SafetensorsFile(InputFile file);
  explicit SafetensorsFile(const std::filesystem::path& path) : SafetensorsFile(InputFile(path)) {}

  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  // The header's __metadata__: what of it is text.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const InputFile& file() const { return file_; }
  // The values of an F32 tensor from number `begin` on, as many as `to` takes. Throws DataError, StorageError.
  void Read(const std::string& name, int64_t begin, std::span<float> to, const Tick& tick = {}) const;
  // The tensor's values as float32: F32, F64, F16 and BF16 are converted. Throws DataError.
  std::vector<float> Floats(const std::string& name, const Tick& tick = {}) const;
  // The same, and of whole numbers too (I64, I32): PyTorch's buffers count in those.
  std::vector<float> Numbers(const std::string& name, const Tick& tick = {}) const;

 private:
  const Tensor& At(const std::string& name) const;
  void ReadFrom(uint64_t at, std::span<std::byte> to, const Tick& tick) const;

  InputFile file_;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_CHECKPOINT_SAFETENSORS_H_
