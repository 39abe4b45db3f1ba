// TensorBoard event files: TFRecord framing with masked CRC-32C around Event messages
// (tensorflow/core/util/event.proto, lib/io/record_writer).
#ifndef TRAINYARD_TRAINER_METRICS_EVENT_FILE_H_
#define TRAINYARD_TRAINER_METRICS_EVENT_FILE_H_

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace trainyard {

// Not for concurrent use. Throws StorageError when the file cannot be made; writing errors are
// reported by the return value, since telemetry never ends a run.
class EventFile {
 public:
  // Makes a new file in `directory`. Readers drop what earlier files hold above `first_step`.
  EventFile(const std::filesystem::path& directory, int64_t first_step);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // Appends one event and flushes it to the system; false when that failed.
  bool AddScalars(int64_t step, const std::vector<std::pair<std::string, double>>& scalars);

 private:
  bool AddEvent(const std::string& event);
  std::FILE* file_;
};

// CRC-32C (Castagnoli), as in RFC 3720 appendix B.4.
uint32_t Crc32c(const void* data, size_t size);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_METRICS_EVENT_FILE_H_
