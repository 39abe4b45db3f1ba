#include "trainer/metrics/record.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

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
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("step") || json["step"].get<int64_t>() > last_step) break;
    kept += line.size() + 1;
  }
  return kept;
}

}  // namespace

Record::Record(const fs::path& path, int64_t last_step) : path_(path) {
  std::error_code error;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  if (fs::exists(path, error)) fs::resize_file(path, KeptBytes(path, last_step), error);
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
