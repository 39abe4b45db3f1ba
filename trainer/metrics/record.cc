#include "trainer/metrics/record.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "common/json.h"
#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/hash.h"
#include "trainer/base/input_file.h"
#include "trainer/base/text.h"

namespace trainyard {
namespace {

[[noreturn]] void RefuseToWrite(const fs::path& path) {
  ThrowUnwritable("train.record: cannot write " + path.string(), errno);
}

// Nothing where it is no line of a record.
std::optional<int64_t> StepOf(const std::string& line) {
  const auto json = ParseJson(line);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) return std::nullopt;
  return json["step"].get<int64_t>();
}

}  // namespace

void CheckRecordFile(const fs::path& path) try {
  const fs::file_status there = LookAt(path);
  if (fs::is_directory(there)) throw ConfigError("train.record: " + path.string() + " is a directory");
  if (fs::is_fifo(there))  // to open it would wait for a reader, and so would each line for a slow one
    throw ConfigError("train.record: " + path.string() + " is a pipe; expected a file");
  if (!fs::is_regular_file(there)) return;
  const InputFile file(path);
  if (file.size() == 0) return;
  // Of a line in a file of strangers no more is read than ours have at the front.
  std::string start(std::min<size_t>(64, file.size()), '\0');
  file.ReadAt(0, std::as_writable_bytes(std::span(start)));
  const std::string front = "{\"attempt\":";
  const bool torn = start.size() < 64 && start.find('\n') == std::string::npos;  // by a crash, in the first line
  const bool ours = start.starts_with(front) && (torn || start.find(",\"step\":") != std::string::npos);
  if (!ours && !(torn && front.starts_with(start)))
    throw ConfigError("train.record: " + path.string() +
                      " is not a record, and would be overwritten; name another file, or remove it");
} catch (const RefusedPathError& refused) {
  throw ConfigError(std::string("train.record: ") + refused.what());
}

Record::Record(const fs::path& path, int64_t last_step, int64_t attempt, const AsOwner& as_owner, const Tick& tick)
    : path_(path) {
  CheckRecordFile(path);
  const bool there = fs::is_regular_file(LookAt(path));
  const auto is_a_step = [](const std::string& line) { return StepOf(line).has_value(); };
  if (last_step == 0 && attempt == 1 && there && LeadingLines(InputFile(path), is_a_step) > 0)
    throw ConfigError("train.record: " + path.string() +
                      " is the record of another run, and would be overwritten: this one starts from scratch; name "
                      "another file, or remove it");
  if (there && access(path.c_str(), W_OK) != 0) RefuseToWrite(path);
  const auto stays = [&](const std::string& line) -> std::optional<bool> {
    const std::optional<int64_t> step = StepOf(line);
    if (!step) return std::nullopt;
    if (*step > last_step) return false;
    kept_step_ = step;
    return true;
  };
  if (there) {
    kept_step_ = 0;
    KeepLeadingLines(path, stays, as_owner, tick);
  }
  file_ = std::fopen(path.c_str(), "abe");
  if (!file_) RefuseToWrite(path);
}

Record::~Record() { std::fclose(file_); }

void Record::Write(const RecordLine& line) {
  std::string text = Format("{\"attempt\":%lld,\"step\":%lld,\"samples\":[", static_cast<long long>(line.attempt),
                            static_cast<long long>(line.step));
  for (size_t i = 0; i < line.samples.size(); ++i) text += (i ? "," : "") + std::to_string(line.samples[i]);
  text += "],\"input_xxh3\":\"" + HexDigest(line.input_xxh3) +
          "\",\"loss\":" + JsonFloat(static_cast<float>(line.loss)) +
          ",\"grad_norm\":" + JsonFloat(static_cast<float>(line.grad_norm)) + ",\"lr\":" + JsonFloat(line.lr) + "}\n";
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size() || std::fflush(file_) != 0) {
    throw StorageError("train.record: cannot write " + path_.string() + ": " + std::strerror(errno));
  }
}

}  // namespace trainyard
