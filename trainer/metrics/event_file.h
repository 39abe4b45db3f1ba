// TensorBoard event files: TFRecord framing with masked CRC-32C around Event messages
// (tensorflow/core/util/event.proto, lib/io/record_writer).
#ifndef TRAINYARD_TRAINER_METRICS_EVENT_FILE_H_
#define TRAINYARD_TRAINER_METRICS_EVENT_FILE_H_

#include <cstdint>
#include <filesystem>

#include "trainer/metrics/append_file.h"
#include "trainer/metrics/protobuf.h"

namespace trainyard {

// Not for concurrent use.
class EventFile {
 public:
  // Makes a new file in `directory`, and that too. Readers drop what earlier files there hold of
  // `from_step` and later steps. Throws StorageError.
  EventFile(const std::filesystem::path& directory, int64_t from_step);

  // Appends an event that holds a summary (tensorflow/core/framework/summary.proto). Throws StorageError.
  void Add(int64_t step, double time, const Message& summary);

 private:
  void AddEvent(const Message& event);
  AppendFile file_;
};

// CRC-32C (Castagnoli), as in RFC 3720 appendix B.4.
uint32_t Crc32c(const void* data, size_t size);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_METRICS_EVENT_FILE_H_
