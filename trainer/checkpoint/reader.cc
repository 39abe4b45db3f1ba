#include "trainer/checkpoint/reader.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <future>
#include <map>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/hash.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/safetensors.h"

namespace trainyard {
namespace {

void VerifyFile(const fs::path& path, const FileInfo& expected) {
  std::error_code error;
  const uint64_t bytes = fs::file_size(path, error);
  if (error) throw StorageError(path.string() + ": " + error.message());
  if (bytes != expected.bytes)
    throw StorageError(path.string() + ": " + std::to_string(bytes) + " bytes, the manifest says " +
                       std::to_string(expected.bytes));
  const std::string hash = HexDigest(Xxh3File(path));
  if (hash != expected.xxh3)
    throw StorageError(path.string() + ": checksum " + hash + ", the manifest says " + expected.xxh3);
}

}  // namespace

std::vector<int64_t> ListSteps(const fs::path& directory) {
  std::vector<int64_t> steps;
  if (!fs::exists(directory)) return steps;
  for (const auto& entry : fs::directory_iterator(directory)) {
    long long step = 0;
    if (std::sscanf(entry.path().filename().c_str(), "step-%lld", &step) == 1 &&
        entry.path().filename() == StepName(step))
      steps.push_back(step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

FoundCheckpoint VerifyCheckpoint(const fs::path& path) {
  const fs::path file = path / "manifest.json";
  FoundCheckpoint found{path, Manifest::Parse(ReadFile(file), file.string())};
  std::vector<std::future<void>> checks;
  for (const auto& [name, info] : found.manifest.files) {
    checks.push_back(std::async(std::launch::async, [&, name = name, info = info] { VerifyFile(path / name, info); }));
  }
  for (auto& check : checks) check.wait();
  for (auto& check : checks) check.get();
  return found;
}

Choice ChooseCheckpoint(const fs::path& directory) {
  Choice choice;
  const Fence fence = Fence::Read(directory);
  bool any_bad = false;
  for (int64_t step : ListSteps(directory)) {
    const fs::path path = directory / StepName(step);
    try {
      const Writer writer = Manifest::Parse(ReadFile(path / "manifest.json"), path.string()).writer;
      if (!fence.Readable(writer, step)) {
        choice.skipped.push_back(StepName(step) + ": written by attempt " + std::to_string(writer.attempt) +
                                 " after a newer attempt had taken over");
        continue;
      }
      FoundCheckpoint found = VerifyCheckpoint(path);
      choice.found = std::move(found);
      return choice;
    } catch (const Error& error) {
      any_bad = true;
      choice.skipped.push_back(StepName(step) + ": " + error.what());
    }
  }
  if (any_bad) {
    std::string text = "checkpoint.dir: " + directory.string() + ": no checkpoint is good";
    for (const std::string& line : choice.skipped) text += "\n  " + line;
    throw StorageError(text + "\n  start afresh with checkpoint.resume: never, or name another checkpoint.dir");
  }
  return choice;
}

void LoadTensors(const FoundCheckpoint& checkpoint, const std::map<std::string, TensorTarget>& targets) {
  const std::string where = checkpoint.path.string();
  for (const auto& [key, target] : targets) {
    const auto it = checkpoint.manifest.tensors.find(key);
    if (it == checkpoint.manifest.tensors.end()) throw StorageError(where + ": no tensor " + key);
    if (it->second.shape != target.shape) throw StorageError(where + ": " + key + " has another shape than the model");
  }
  std::map<std::string, SafetensorsFile> files;
  for (const auto& [key, target] : targets) {
    for (const Slice& slice : checkpoint.manifest.tensors.at(key).slices) {
      const auto file = files.try_emplace(slice.file, checkpoint.path / slice.file).first;
      const auto entry = file->second.tensors().find(slice.entry);
      const auto count = static_cast<size_t>(slice.end - slice.begin);
      if (entry == file->second.tensors().end() || entry->second.data.size() != count * sizeof(float) ||
          static_cast<size_t>(slice.end) > target.values.size()) {
        throw StorageError(where + ": " + slice.file + ": " + slice.entry + " does not hold what the manifest says");
      }
      std::memcpy(target.values.data() + slice.begin, entry->second.data.data(), count * sizeof(float));
    }
  }
}

}  // namespace trainyard
