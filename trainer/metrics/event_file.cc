#include "trainer/metrics/event_file.h"

#include <unistd.h>

#include <array>
#include <string>

#include "trainer/base/text.h"
#include "trainer/metrics/status.h"

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

Message EventAt(int64_t step, double time) {
  Message event;
  event.Double(1, time).Varint(2, static_cast<uint64_t>(step));
  return event;
}

// Readers take the files in the order of their names, which start with the time.
std::filesystem::path NewFile(const std::filesystem::path& directory) {
  std::error_code ignored;
  std::filesystem::create_directories(directory, ignored);
  char host[256] = "localhost";
  gethostname(host, sizeof host - 1);
  return directory / Format("events.out.tfevents.%.6f.%s.%d", UnixTime(), host, getpid());
}

}  // namespace

uint32_t Crc32c(const void* data, size_t size) {
  static constexpr std::array<uint32_t, 256> kTable = MakeCrcTable();
  const auto* bytes = static_cast<const unsigned char*>(data);
  uint32_t crc = ~0u;
  for (size_t i = 0; i < size; ++i) crc = kTable[(crc ^ bytes[i]) & 255] ^ (crc >> 8);
  return ~crc;
}

EventFile::EventFile(const std::filesystem::path& directory, int64_t from_step) : file_(NewFile(directory)) {
  AddEvent(Message().Double(1, UnixTime()).Bytes(3, "brain.Event:2"));
  constexpr int kSessionStart = 1;
  AddEvent(EventAt(from_step, UnixTime()).Add(7, Message().Varint(1, kSessionStart)));
}

void EventFile::Add(int64_t step, double time, const Message& summary) {
  AddEvent(EventAt(step, time).Add(5, summary));
}

void EventFile::AddEvent(const Message& event) {
  const std::string& data = event.bytes();
  const uint64_t length = data.size();
  const uint32_t length_crc = Masked(Crc32c(&length, 8)), data_crc = Masked(Crc32c(data.data(), data.size()));
  std::string record(reinterpret_cast<const char*>(&length), 8);
  record.append(reinterpret_cast<const char*>(&length_crc), 4);
  record += data;
  record.append(reinterpret_cast<const char*>(&data_crc), 4);
  file_.Append(record);
}

}  // namespace trainyard
