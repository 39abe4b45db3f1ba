#include "trainer/checkpoint/commands.h"

#include <cstdio>
#include <optional>
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
    RequireNamedStep(checkpoint);
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

// Prints a line; returns whether training can go on from it as far as it alone is concerned.
bool VerifyStep(const fs::path& path, const Fence* fence) {
  try {
    const OpenCheckpoint checkpoint = VerifyCheckpoint(path);
    RequireNamedStep(checkpoint);
    const Manifest& manifest = checkpoint.manifest;
    const Standing standing = fence ? fence->Of(manifest.writer, manifest.step) : Standing::kReadable;
    if (standing == Standing::kUnlisted) throw StorageError(Word(standing));
    std::printf("%s: good%s\n", path.c_str(), standing == Standing::kFencedOff ? ", but fenced off" : "");
    return true;
  } catch (const Error& error) {
    std::printf("%s: bad: %s\n", path.c_str(), error.what());
    return false;
  }
}

}  // namespace

int ListCheckpoints(const fs::path& path) {
  const fs::path directory = CheckpointsAt("checkpoint ls", path);
  if (ListSteps(directory).empty())
    throw ConfigError(
        "checkpoint ls: " + directory.string() +
        " is one checkpoint; expected the directory that holds it, or a run's (`checkpoint verify` looks into one)");
  const Fence fence = Fence::Read(directory);
  std::printf("%-16s %10s %8s %-10s %s\n", "step", "bytes", "attempt", "job", "state");
  for (int64_t step : ListSteps(directory)) ListStep(directory, step, fence);
  for (const fs::path& aside : ListAside(directory))
    std::printf("%-16s %10s %8s %-10s moved aside: %s\n", aside.stem().c_str(), "-", "-", "-",
                aside.filename().c_str());
  return 0;
}

int VerifyCheckpoints(const fs::path& path) {
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

}  // namespace trainyard
