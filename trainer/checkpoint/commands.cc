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
#include "trainer/checkpoint/retention.h"
#include "trainer/checkpoint/safetensors.h"

namespace trainyard {
namespace {

using Tensors = std::map<std::string, std::vector<float>>;

const char* Word(Standing standing) {
  switch (standing) {
    case Standing::kReadable:
      return "readable";
    case Standing::kFencedOff:
      return "fenced off";
    case Standing::kUnlisted:
      return "no fence lists its writer";
  }
  return "";
}

std::string ListedAs(Standing standing) {
  return std::string(Word(standing)) + (standing == Standing::kReadable ? ", sizes fit" : "");
}

// What a look at the directory shows; only `verify` reads the files.
void RequireSizes(const OpenCheckpoint& checkpoint) {
  for (const auto& [name, file] : checkpoint.manifest.files) {
    std::error_code error;
    const uint64_t bytes = fs::file_size(checkpoint.path / name, error);
    if (error) throw StorageError(name + ": " + error.message());
    if (bytes != file.bytes)
      throw StorageError(Format("%s has %llu bytes instead of %llu", name.c_str(),
                                static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(file.bytes)));
  }
}

void ListStep(const fs::path& directory, int64_t step, const Fence& fence) {
  try {
    const OpenCheckpoint checkpoint = OpenCheckpoint::Open(directory / StepName(step));
    const Manifest& manifest = checkpoint.manifest;
    RequireSizes(checkpoint);
    uint64_t bytes = 0;
    for (const auto& [name, file] : manifest.files) bytes += file.bytes;
    std::printf("%-16s %10s %8lld %-10s %s\n", StepName(step).c_str(), HumanBytes(static_cast<double>(bytes)).c_str(),
                static_cast<long long>(manifest.writer.attempt), manifest.writer.job_uid.substr(0, 8).c_str(),
                ListedAs(fence.Of(manifest.writer, step)).c_str());
  } catch (const Error& error) {
    std::printf("%-16s %10s %8s %-10s bad: %s\n", StepName(step).c_str(), "-", "-", "-", error.what());
  }
}

int List(const fs::path& path) {
  const fs::path directory = CheckpointsAt("checkpoint ls", path);
  const Fence fence = Fence::Read(directory);
  std::printf("%-16s %10s %8s %-10s %s\n", "step", "bytes", "attempt", "job", "state");
  for (int64_t step : ListSteps(directory)) ListStep(directory, step, fence);
  for (const fs::path& aside : ListAside(directory))
    std::printf("%-16s %10s %8s %-10s moved aside: %s\n", aside.stem().c_str(), "-", "-", "-",
                aside.filename().c_str());
  return 0;
}

// Prints a line; returns whether training can go on from it as far as it alone is concerned.
bool VerifyStep(const fs::path& path, const Fence* fence) {
  try {
    const Manifest manifest = VerifyCheckpoint(path).manifest;
    const Standing standing = fence ? fence->Of(manifest.writer, manifest.step) : Standing::kReadable;
    if (standing == Standing::kUnlisted) throw StorageError(Word(standing));
    std::printf("%s: good%s\n", path.c_str(), standing == Standing::kFencedOff ? ", but fenced off" : "");
    return true;
  } catch (const Error& error) {
    std::printf("%s: bad: %s\n", path.c_str(), error.what());
    return false;
  }
}

int VerifyPath(const fs::path& path) {
  const fs::path found = CheckpointsAt("checkpoint verify", path);
  const std::vector<int64_t> steps = ListSteps(found);
  bool good = true;
  if (steps.empty()) {
    good = VerifyStep(found, nullptr);
  } else {
    std::optional<Fence> fence;
    try {
      fence = Fence::Read(found);
    } catch (const StorageError& error) {
      std::printf("%s\n", error.what());
      good = false;
    }
    for (int64_t step : steps) good = VerifyStep(found / StepName(step), fence ? &*fence : nullptr) && good;
  }
  return good ? 0 : static_cast<int>(ExitCode::kStorage);
}

Tensors ReadAll(const OpenCheckpoint& checkpoint) {
  Tensors tensors;
  TensorTargets targets;
  for (const auto& [key, info] : checkpoint.manifest.tensors) {
    const int64_t numel = info.slices.empty() ? 0 : info.slices.back().end;
    targets[key] = {info.shape, tensors.emplace(key, std::vector<float>(static_cast<size_t>(numel))).first->second};
  }
  LoadTensors(checkpoint, targets);
  return tensors;
}

int Diff(const fs::path& first, const fs::path& second) {
  const Tensors a = ReadAll(FindCheckpoint("checkpoint diff", first)),
                b = ReadAll(FindCheckpoint("checkpoint diff", second));
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

int RunCheckpointCommand(const std::string& command, const fs::path& first, const fs::path& second) {
  if (command == "ls") return List(first);
  if (command == "verify") return VerifyPath(first);
  return Diff(first, second);
}

}  // namespace trainyard
