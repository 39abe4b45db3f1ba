#include "trainer/checkpoint/manifest.h"

#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/text.h"
#include "trainer/checkpoint/sealed_json.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

}  // namespace

std::string StepName(int64_t step) { return Format("step-%08lld", static_cast<long long>(step)); }

std::string Manifest::ToText() const {
  Json root = state;
  root["format"] = kFormat;
  root["writer"] = {{"job_uid", writer.job_uid}, {"attempt", writer.attempt}};
  root["step"] = step;
  root["tensors"] = Json::object();
  for (const auto& [key, tensor] : tensors) {
    Json slices = Json::array();
    for (const Slice& s : tensor.slices)
      slices.push_back({{"file", s.file}, {"key", s.entry}, {"begin", s.begin}, {"end", s.end}});
    root["tensors"][key] = {{"shape", tensor.shape}, {"dtype", "F32"}, {"slices", slices}};
  }
  root["files"] = Json::object();
  for (const auto& [name, file] : files) root["files"][name] = {{"bytes", file.bytes}, {"xxh3", file.xxh3}};
  return Seal(root);
}

void Manifest::RequireComplete(const std::string& origin) const {
  for (const auto& [name, file] : files) {
    if (fs::path(name).filename() != name) throw StorageError(origin + ": " + name + " is not the name of a file");
  }
  for (const auto& [key, tensor] : tensors) {
    int64_t numel = 1, expected = 0;
    for (int64_t d : tensor.shape) {
      if (d < 0 || __builtin_mul_overflow(numel, d, &numel))
        throw StorageError(origin + ": " + key + ": no such shape");
    }
    for (const Slice& slice : tensor.slices) {
      if (slice.begin != expected || slice.end < slice.begin)
        throw StorageError(origin + ": " + key + ": slices overlap or leave a hole at " + std::to_string(expected));
      if (!files.contains(slice.file))
        throw StorageError(origin + ": " + key + ": file " + slice.file + " is not listed");
      expected = slice.end;
    }
    if (expected != numel)
      throw StorageError(origin + ": " + key + ": slices end at " + std::to_string(expected) + " of " +
                         std::to_string(numel));
  }
}

Manifest Manifest::Parse(const std::string& text, const std::string& origin) {
  try {
    Manifest manifest;
    Json root = Unseal(text, origin);
    if (root.at("format").get<int>() != kFormat)
      throw StorageError(origin + ": format " + root["format"].dump() + ", expected " + std::to_string(kFormat));
    manifest.writer = {root.at("writer").at("job_uid").get<std::string>(),
                       root.at("writer").at("attempt").get<int64_t>()};
    manifest.step = root.at("step").get<int64_t>();
    for (const auto& [key, tensor] : root.at("tensors").items()) {
      TensorInfo& info = manifest.tensors[key];
      info.shape = tensor.at("shape").get<std::vector<int64_t>>();
      for (const Json& s : tensor.at("slices")) {
        info.slices.push_back({s.at("file").get<std::string>(), s.at("key").get<std::string>(),
                               s.at("begin").get<int64_t>(), s.at("end").get<int64_t>()});
      }
    }
    for (const auto& [name, file] : root.at("files").items())
      manifest.files[name] = {file.at("bytes").get<uint64_t>(), file.at("xxh3").get<std::string>()};
    for (const char* key : {"format", "writer", "step", "tensors", "files"}) root.erase(key);
    manifest.state = std::move(root);
    manifest.RequireComplete(origin);
    return manifest;
  } catch (const Json::exception& error) {
    throw StorageError(origin + ": not a manifest: " + error.what());
  }
}

}  // namespace trainyard
