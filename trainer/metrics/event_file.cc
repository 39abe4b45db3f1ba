#include "trainer/metrics/event_file.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "trainer/base/error.h"
#include "trainer/base/text.h"

namespace trainyard {
namespace {

constexpr std::array<uint32_t, 256> MakeCrcTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int k = 0; k < 8; ++k) c = c & 1 ? 0x82F63B78u ^ (c >> 1) : c >> 1;
    table[i] = c;
  }
  return table;
}

uint32_t Masked(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u; }

double Now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// The few protocol buffer fields that events need (encoding: varints, fixed width, lengths).
class Message {
 public:
  void Varint(int field, uint64_t value) {
    Number(static_cast<uint64_t>(field) << 3);
    Number(value);
  }
  template <class T>
  void Fixed(int field, T value) {
    Number(static_cast<uint64_t>(field) << 3 | (sizeof(T) == 8 ? 1 : 5));
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  void Bytes(int field, const std::string& value) {
    Number(static_cast<uint64_t>(field) << 3 | 2);
    Number(value.size());
    bytes_ += value;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void Number(uint64_t value) {
    for (; value >= 128; value >>= 7) bytes_ += static_cast<char>(value | 128);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

Message EventAt(int64_t step) {
  Message event;
  event.Fixed<double>(1, Now());
  event.Varint(2, static_cast<uint64_t>(step));
  return event;
}

}  // namespace

uint32_t Crc32c(const void* data, size_t size) {
  static constexpr std::array<uint32_t, 256> kTable = MakeCrcTable();
  const auto* bytes = static_cast<const unsigned char*>(data);
  uint32_t crc = ~0u;
  for (size_t i = 0; i < size; ++i) crc = kTable[(crc ^ bytes[i]) & 255] ^ (crc >> 8);
  return ~crc;
}

EventFile::EventFile(const std::filesystem::path& directory, int64_t first_step) {
  std::error_code ignored;
  std::filesystem::create_directories(directory, ignored);
  char host[256] = "localhost";
  gethostname(host, sizeof host - 1);
  // Readers take the files in the order of their names, which start with the time.
  const auto name = Format("events.out.tfevents.%.6f.%s.%d", Now(), host, getpid());
  file_ = std::fopen((directory / name).c_str(), "wbe");
  if (!file_) throw StorageError("cannot create " + (directory / name).string() + ": " + std::strerror(errno));
  Message version;
  version.Fixed<double>(1, Now());
  version.Bytes(3, "brain.Event:2");
  AddEvent(version.bytes());
  Message start, event = EventAt(first_step);
  start.Varint(1, 1);  // SessionLog.START
  event.Bytes(7, start.bytes());
  AddEvent(event.bytes());
}

EventFile::~EventFile() { std::fclose(file_); }

bool EventFile::AddScalars(int64_t step, const std::vector<std::pair<std::string, double>>& scalars) {
  Message summary;
  for (const auto& [tag, number] : scalars) {
    Message value;
    value.Bytes(1, tag);
    value.Fixed<float>(2, static_cast<float>(number));
    summary.Bytes(1, value.bytes());
  }
  Message event = EventAt(step);
  event.Bytes(5, summary.bytes());
  return AddEvent(event.bytes());
}

bool EventFile::AddEvent(const std::string& event) {
  const uint64_t length = event.size();
  const uint32_t length_crc = Masked(Crc32c(&length, 8)), data_crc = Masked(Crc32c(event.data(), event.size()));
  std::string record(reinterpret_cast<const char*>(&length), 8);
  record.append(reinterpret_cast<const char*>(&length_crc), 4);
  record += event;
  record.append(reinterpret_cast<const char*>(&data_crc), 4);
  return std::fwrite(record.data(), 1, record.size(), file_) == record.size() && std::fflush(file_) == 0;
}

}  // namespace trainyard
