// What a checkpoint directory says about itself; docs/formats.md specifies the JSON.
#ifndef TRAINYARD_TRAINER_CHECKPOINT_MANIFEST_H_
#define TRAINYARD_TRAINER_CHECKPOINT_MANIFEST_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace trainyard {

struct Writer {
  std::string job_uid;
  int64_t attempt = 0;
  bool operator==(const Writer&) const = default;
};

// A part [begin, end) of a row-major tensor: the entry "<key>#<begin>" of a file.
struct Slice {
  std::string file;
  std::string entry;
  int64_t begin = 0, end = 0;
};

struct TensorInfo {
  std::vector<int64_t> shape;
  std::vector<Slice> slices;  // sorted, disjoint, complete
};

struct FileInfo {
  uint64_t bytes = 0;
  std::string xxh3;
};

struct Manifest {
  static constexpr int kFormat = 2;  // 1 had no checksum of its own and is not read
  // A slice takes some 200 bytes, so this is over a million of them: the parameters of a large model on hundreds of
  // ranks. One that is larger is damaged: it is read whole, and must not take the memory in which an older step is
  // looked for.
  static constexpr uint64_t kMaxBytes = 256 << 20;
  Writer writer;
  int64_t step = 0;
  std::map<std::string, TensorInfo> tensors;
  std::map<std::string, FileInfo> files;
  nlohmann::json state;  // everything else: cursor, seed, world, config, schedules, ...

  // The sealed text (sealed_json.h).
  std::string ToText() const;
  // Throws StorageError naming `origin` and the problem: a checksum that does not fit, another
  // format, slices that overlap, leave a hole or name a file that is not listed.
  static Manifest Parse(const std::string& text, const std::string& origin);
  // Throws StorageError as Parse does, of slices, shapes and names of files.
  void RequireComplete(const std::string& origin) const;
};

// A checkpoint that is durable.
struct CommittedCheckpoint {
  int64_t step = 0;
  uint64_t bytes = 0;             // of all its files
  int64_t time = 0;               // when it was committed, seconds since the epoch
  std::optional<double> seconds;  // how long saving took; unknown of another attempt's
};

// "step-00001000".
std::string StepName(int64_t step);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_CHECKPOINT_MANIFEST_H_
