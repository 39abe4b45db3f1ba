#include "trainer/metrics/record.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/json.h"
#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/hash.h"
#include "trainer/base/text.h"

namespace trainyard {
namespace {

// The length of the leading lines that are whole and of steps up to `last_step`.
uintmax_t KeptBytes(const fs::path& path, int64_t last_step) {
  std::ifstream in(path, std::ios::binary);
  uintmax_t kept = 0;
  for (std::string line; std::getline(in, line) && !in.eof();) {
    const auto json = ParseJson(line);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) break;
    if (json["step"].get<int64_t>() > last_step) break;
    kept += line.size() + 1;
  }
  return kept;
}

}  // namespace

void CheckRecordFile(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) throw ConfigError("train.record: " + path.string() + " is a directory");
  if (fs::is_fifo(path, error))  // to open it would wait for a reader, and so would each line for a slow one
    throw ConfigError("train.record: " + path.string() + " is a pipe; expected a file");
  if (!fs::is_regular_file(path, error) || fs::file_size(path, error) == 0) return;
  // Of a line in a file of strangers no more is read than ours have at the front.
  std::ifstream in(path, std::ios::binary);
  std::string start(64, '\0');
  in.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<size_t>(in.gcount()));
  const std::string front = "{\"attempt\":";
  const bool torn = start.size() < 64 && start.find('\n') == std::string::npos;  // by a crash, in the first line
  const bool ours = start.starts_with(front) && (torn || start.find(",\"step\":") != std::string::npos);
  if (!ours && !(torn && front.starts_with(start)))
    throw ConfigError("train.record: " + path.string() +
                      " is not a record, and would be overwritten; name another file, or remove it");
}

Record::Record(const fs::path& path, int64_t last_step, int64_t attempt) : path_(path) {
  CheckRecordFile(path);
  std::error_code error;
  if (last_step == 0 && attempt == 1 && fs::is_regular_file(path, error) && KeptBytes(path, INT64_MAX) > 0)
    throw ConfigError("train.record: " + path.string() +
                      " is the record of another run, and would be overwritten: this one starts from scratch; name "
                      "another file, or remove it");
  if (fs::is_regular_file(path, error)) fs::resize_file(path, KeptBytes(path, last_step), error);
  file_ = std::fopen(path.c_str(), "abe");
  if (!file_) throw ConfigError("train.record: cannot write " + path.string() + ": " + std::strerror(errno));
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
