#include "trainer/checkpoint/commands.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/text.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/safetensors.h"

namespace trainyard {
namespace {

using Tensors = std::map<std::string, std::vector<float>>;

bool IsCheckpoint(const fs::path& path) { return fs::exists(path / "manifest.json"); }

void RequireDirectory(const fs::path& path) {
  if (!fs::is_directory(path)) throw ConfigError(path.string() + ": no such directory");
}

int List(const fs::path& directory) {
  RequireDirectory(directory);
  const Fence fence = Fence::Read(directory);
  std::printf("%-16s %10s %8s %-10s %s\n", "step", "bytes", "attempt", "job", "state");
  for (int64_t step : ListSteps(directory)) {
    const fs::path path = directory / StepName(step);
    try {
      const Manifest manifest = Manifest::Parse(ReadFile(path / "manifest.json"), path.string());
      uint64_t bytes = 0;
      for (const auto& [name, file] : manifest.files) bytes += file.bytes;
      std::printf("%-16s %10s %8lld %-10s %s\n", StepName(step).c_str(), HumanBytes(static_cast<double>(bytes)).c_str(),
                  static_cast<long long>(manifest.writer.attempt), manifest.writer.job_uid.substr(0, 8).c_str(),
                  fence.Readable(manifest.writer, step) ? "readable" : "fenced off");
    } catch (const Error& error) {
      std::printf("%-16s %10s %8s %-10s bad: %s\n", StepName(step).c_str(), "-", "-", "-", error.what());
    }
  }
  return 0;
}

int Verify(const fs::path& path) {
  RequireDirectory(path);
  std::vector<fs::path> checkpoints;
  if (IsCheckpoint(path)) checkpoints.push_back(path);
  if (checkpoints.empty()) {
    for (int64_t step : ListSteps(path)) checkpoints.push_back(path / StepName(step));
  }
  if (checkpoints.empty()) throw ConfigError(path.string() + ": holds no checkpoint");
  bool good = true;
  for (const fs::path& checkpoint : checkpoints) {
    try {
      VerifyCheckpoint(checkpoint);
      std::printf("%s: good\n", checkpoint.c_str());
    } catch (const Error& error) {
      std::printf("%s: bad: %s\n", checkpoint.c_str(), error.what());
      good = false;
    }
  }
  return good ? 0 : static_cast<int>(ExitCode::kStorage);
}

FoundCheckpoint Find(const fs::path& path) {
  RequireDirectory(path);
  if (IsCheckpoint(path)) return VerifyCheckpoint(path);
  Choice choice = ChooseCheckpoint(path);
  if (!choice.found) throw ConfigError(path.string() + ": holds no checkpoint");
  return std::move(*choice.found);
}

Tensors ReadAll(const FoundCheckpoint& checkpoint, const std::string& prefix) {
  Tensors tensors;
  std::map<std::string, TensorTarget> targets;
  for (const auto& [key, info] : checkpoint.manifest.tensors) {
    if (!key.starts_with(prefix)) continue;
    const int64_t numel = info.slices.empty() ? 0 : info.slices.back().end;
    targets[key] = {info.shape, tensors.emplace(key, std::vector<float>(static_cast<size_t>(numel))).first->second};
  }
  LoadTensors(checkpoint, targets);
  return tensors;
}

int Export(const fs::path& path, const fs::path& out) {
  const FoundCheckpoint checkpoint = Find(path);
  const Tensors tensors = ReadAll(checkpoint, "model.");
  std::vector<SafetensorsEntry> entries;
  for (const auto& [key, values] : tensors)
    entries.push_back({key.substr(6), checkpoint.manifest.tensors.at(key).shape, values});
  const fs::path temporary = out.string() + ".tmp";
  WriteSafetensors(temporary, entries, {{"format", "pt"}});
  std::error_code error;
  fs::rename(temporary, out, error);
  if (error) throw StorageError("cannot write " + out.string() + ": " + error.message());
  std::printf("%s: %zu tensors of %s\n", out.c_str(), entries.size(), checkpoint.path.c_str());
  return 0;
}

int Diff(const fs::path& first, const fs::path& second) {
  const Tensors a = ReadAll(Find(first), ""), b = ReadAll(Find(second), "");
  std::set<std::string> keys;
  for (const auto& [key, values] : a) keys.insert(key);
  for (const auto& [key, values] : b) keys.insert(key);
  int different = 0;
  for (const std::string& key : keys) {
    if (!a.contains(key) || !b.contains(key)) {
      std::printf("%s: only in %s\n", key.c_str(), a.contains(key) ? first.c_str() : second.c_str());
      ++different;
      continue;
    }
    const std::vector<float>&x = a.at(key), &y = b.at(key);
    if (x == y) continue;
    double largest = 0;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i)
      largest = std::max(largest, std::abs(static_cast<double>(x[i]) - y[i]));
    std::printf("%s: largest difference %g\n", key.c_str(), largest);
    ++different;
  }
  std::printf("%d of %zu tensors differ\n", different, keys.size());
  return different ? 1 : 0;
}

}  // namespace

int RunCheckpointCommand(const std::string& command, const fs::path& first, const fs::path& second,
                         const fs::path& out) {
  if (command == "ls") return List(first);
  if (command == "verify") return Verify(first);
  if (command == "export") return Export(first, out);
  return Diff(first, second);
}

}  // namespace trainyard
