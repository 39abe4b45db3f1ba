#include "trainer/checkpoint/reader.h"

#include <algorithm>
#include <cstdio>
#include <mutex>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/for_each.h"
#include "trainer/base/hash.h"
#include "trainer/base/text.h"

namespace trainyard {
namespace {

void VerifySlices(const OpenCheckpoint& checkpoint, const std::string& name, const SafetensorsFile& file) {
  for (const auto& [key, tensor] : checkpoint.manifest.tensors) {
    for (const Slice& slice : tensor.slices) {
      if (slice.file != name) continue;
      const auto entry = file.tensors().find(slice.entry);
      if (entry == file.tensors().end() || entry->second.dtype != "F32" ||
          entry->second.bytes != static_cast<uint64_t>(slice.end - slice.begin) * sizeof(float))
        throw DamagedError(file.file().path().string() + ": " + slice.entry + " does not hold what the manifest says");
    }
  }
}

// A file of a checkpoint. That it is not there, or is no file, is damage; that it cannot be opened says nothing of it.
InputFile OpenStored(const fs::path& path) try { return InputFile(path); } catch (const RefusedPathError& refused) {
  if (!fs::is_regular_file(LookAt(path))) throw DamagedError(refused.what());
  throw;
}

enum class Checksums { kCompare, kCompared };

SafetensorsFile VerifyFile(const OpenCheckpoint& checkpoint, const std::string& name, Checksums checksums,
                           const Tick& tick) {
  const fs::path path = checkpoint.path / name;
  const FileInfo& expected = checkpoint.manifest.files.at(name);
  InputFile content = OpenStored(path);
  if (content.size() != expected.bytes)
    throw DamagedError(path.string() + ": " + std::to_string(content.size()) + " bytes, the manifest says " +
                       std::to_string(expected.bytes));
  const std::string hash = checksums == Checksums::kCompare ? HexDigest(content.Checksum(tick)) : expected.xxh3;
  if (hash != expected.xxh3)
    throw DamagedError(path.string() + ": checksum " + hash + ", the manifest says " + expected.xxh3);
  SafetensorsFile file(std::move(content));
  VerifySlices(checkpoint, name, file);
  return file;
}

std::string Problems(const fs::path& directory, const std::vector<std::string>& skipped) {
  std::string text = "checkpoint.dir: " + directory.string() + ": no checkpoint is good";
  for (const std::string& line : skipped) text += "\n  " + line;
  return text + "\n  to start afresh name another checkpoint.dir";
}

// An older one in its place would throw away what it holds, if it is good.
[[noreturn]] void RefuseUnseen(const fs::path& checkpoint, const StorageError& error) {
  throw StorageError(checkpoint.string() + " could not be looked at, and may be good: " + error.what() +
                     "; make it readable, or move it away to go on from an older one");
}

bool IsCheckpoint(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path / "manifest.json", ignored);
}

// The step, if it may be gone on from. Throws DamagedError for one that is bad.
std::optional<OpenCheckpoint> TryStep(const fs::path& directory, int64_t step, const Fence& fence, const Verify& verify,
                                      bool* unlisted) {
  std::error_code error;
  const fs::file_status there = fs::status(directory / StepName(step), error);
  if (error == std::errc::too_many_symbolic_link_levels || (!error && !fs::is_directory(there)))
    throw DamagedError("it is no folder");
  OpenCheckpoint candidate = OpenCheckpoint::Open(directory / StepName(step));
  RequireNamedStep(candidate);
  const Standing standing = fence.Of(candidate.manifest.writer, step);
  *unlisted = standing == Standing::kUnlisted;
  if (standing != Standing::kReadable) return {};
  verify(candidate);
  return candidate;
}

}  // namespace

Manifest ReadManifest(const fs::path& file) {
  const InputFile stored = OpenStored(file);
  if (stored.size() > Manifest::kMaxBytes)
    throw DamagedError(file.string() + ": " + HumanBytes(static_cast<double>(stored.size())) + "; expected at most " +
                       HumanBytes(static_cast<double>(Manifest::kMaxBytes)));
  std::string text(stored.size(), '\0');
  stored.ReadAt(0, std::as_writable_bytes(std::span(text)));
  try {
    return Manifest::Parse(text, file.string());
  } catch (const StorageError& error) {
    throw DamagedError(error.what());
  }
}

OpenCheckpoint OpenCheckpoint::Open(const fs::path& path) { return {path, ReadManifest(path / "manifest.json"), {}}; }

std::vector<std::string> OpenCheckpoint::FileNames() const {
  std::vector<std::string> names;
  for (const auto& [name, info] : manifest.files) names.push_back(name);
  return names;
}

std::optional<int64_t> StepOf(const fs::path& folder) {
  long long step = 0;
  const std::string name = folder.filename();
  if (std::sscanf(name.c_str(), "step-%lld", &step) != 1 || name != StepName(step)) return std::nullopt;
  return step;
}

void RequireNamedStep(const OpenCheckpoint& checkpoint) {
  const std::optional<int64_t> step = StepOf(checkpoint.path);
  if (step && *step != checkpoint.manifest.step)
    throw DamagedError("its manifest says step " + std::to_string(checkpoint.manifest.step));
}

std::vector<int64_t> ListSteps(const fs::path& directory) {
  std::vector<int64_t> steps;
  std::error_code error;
  if (!fs::exists(directory, error) && !error) return steps;
  fs::directory_iterator entries(directory, error);
  if (error) throw StorageError("cannot read " + directory.string() + ": " + error.message());
  for (const auto& entry : entries) {
    if (const std::optional<int64_t> step = StepOf(entry.path())) steps.push_back(*step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

void VerifyFiles(OpenCheckpoint& checkpoint, std::span<const std::string> names, const Tick& tick) try {
  constexpr int64_t kThreads = 4;
  std::mutex mutex;
  ForEach(std::ssize(names), kThreads, [&](int64_t i) {
    const std::string& name = names[static_cast<size_t>(i)];
    SafetensorsFile file = VerifyFile(checkpoint, name, Checksums::kCompare, tick);
    const std::lock_guard lock(mutex);
    checkpoint.files.emplace(name, std::move(file));
  });
} catch (const DataError& problem) {  // a header: in a checkpoint that is storage
  throw DamagedError(problem.what());
}

void OpenVerified(OpenCheckpoint& checkpoint) try {
  for (const std::string& name : checkpoint.FileNames()) {
    if (!checkpoint.files.contains(name))
      checkpoint.files.emplace(name, VerifyFile(checkpoint, name, Checksums::kCompared, {}));
  }
} catch (const DataError& problem) {  // a header: in a checkpoint that is storage
  throw DamagedError(problem.what());
}

void VerifyAllFiles(OpenCheckpoint& checkpoint) { VerifyFiles(checkpoint, checkpoint.FileNames()); }

OpenCheckpoint VerifyCheckpoint(const fs::path& path) {
  OpenCheckpoint checkpoint = OpenCheckpoint::Open(path);
  VerifyAllFiles(checkpoint);
  return checkpoint;
}

Choice ChooseCheckpoint(const fs::path& directory, const Verify& verify, const std::string& remedy) {
  Choice choice;
  const Fence fence = Fence::Read(directory);
  const Fence::Owner* start = fence.LastStarted();
  const bool named = start && !start->source.empty();
  bool any_bad = false;
  for (int64_t step : ListSteps(directory)) {
    bool unlisted = false;
    try {
      choice.found = TryStep(directory, step, fence, verify, &unlisted);
      if (choice.found) return choice;
      if (!unlisted) choice.skipped.push_back(StepName(step) + ": a later attempt did not go on from it");
    } catch (const DamagedError& error) {
      any_bad = true;
      choice.skipped.push_back(StepName(step) + ": " + error.what());
    } catch (const StorageError& error) {
      RefuseUnseen(directory / StepName(step), error);
    }
    // A run that was told what to start from does not need the fence that once listed these.
    if (unlisted && named) choice.skipped.push_back(StepName(step) + ": no fence lists its writer");
    if (unlisted && !named)
      throw StorageError("checkpoint.dir: " + directory.string() + ": no fence lists the writer of " + StepName(step) +
                         ": the fence is lost, or the step was copied here. " + remedy);
  }
  if (named) {
    try {
      OpenCheckpoint source = OpenCheckpoint::Open(start->source);
      verify(source);
      choice.found = std::move(source);
      choice.named = true;
      return choice;
    } catch (const DamagedError& error) {
      any_bad = true;
      choice.skipped.push_back(start->source + ": " + error.what());
    } catch (const StorageError& error) {
      RefuseUnseen(start->source, error);
    }
  }
  if (start && *start->resumed_step > 0 && !any_bad) {
    any_bad = true;
    choice.skipped.push_back(StepName(*start->resumed_step) + ", which attempt " +
                             std::to_string(start->writer.attempt) + " went on from, is gone");
  }
  if (any_bad) throw StorageError(Problems(directory, choice.skipped));
  return choice;
}

fs::path CheckpointsAt(const std::string& field, const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) throw ConfigError(field + ": " + path.string() + ": no such directory");
  if (IsCheckpoint(path) || !ListSteps(path).empty()) return path;
  fs::path inside = path / "checkpoints";
  if (!ListSteps(inside).empty()) return inside;
  throw ConfigError(field + ": " + path.string() + " holds no checkpoint");
}

OpenCheckpoint FindCheckpoint(const std::string& field, const fs::path& path, const Verify& verify) {
  const fs::path directory = CheckpointsAt(field, path);
  if (IsCheckpoint(directory)) {
    OpenCheckpoint checkpoint = OpenCheckpoint::Open(directory);
    verify(checkpoint);
    return checkpoint;
  }
  Choice choice = ChooseCheckpoint(directory, verify, "Name the folder of the step");
  if (!choice.found)
    throw StorageError(field + ": " + directory.string() + ": every step is fenced off by a later attempt" +
                       "; name one (" + StepName(ListSteps(directory).front()) + ")");
  return std::move(*choice.found);
}

int64_t LoadOpenFiles(const OpenCheckpoint& checkpoint, const TensorTargets& targets, const Tick& tick) {
  const std::string where = checkpoint.path.string();
  for (const auto& [key, target] : targets) {
    const auto it = checkpoint.manifest.tensors.find(key);
    if (it == checkpoint.manifest.tensors.end()) throw StorageError(where + ": no tensor " + key);
    if (it->second.shape != target.shape) throw StorageError(where + ": " + key + " has another shape than the model");
    const int64_t numel = it->second.slices.empty() ? 0 : it->second.slices.back().end;
    const auto size = static_cast<int64_t>(target.values.size());
    if (target.begin < 0 || size > numel || target.begin > numel - size)
      throw StorageError(where + ": " + key + " has " + std::to_string(numel) + " values");
  }
  int64_t copied = 0;
  for (const auto& [key, target] : targets) {
    for (const Slice& slice : checkpoint.manifest.tensors.at(key).slices) {
      const int64_t begin = std::max(slice.begin, target.begin);
      const int64_t end = std::min(slice.end, target.begin + static_cast<int64_t>(target.values.size()));
      const auto file = checkpoint.files.find(slice.file);
      if (begin >= end || file == checkpoint.files.end()) continue;
      const auto part =
          target.values.subspan(static_cast<size_t>(begin - target.begin), static_cast<size_t>(end - begin));
      file->second.Read(slice.entry, begin - slice.begin, part, tick);
      copied += end - begin;
    }
  }
  return copied;
}

void LoadTensors(const OpenCheckpoint& checkpoint, const TensorTargets& targets, const Tick& tick) {
  int64_t wanted = 0;
  for (const auto& [key, target] : targets) wanted += static_cast<int64_t>(target.values.size());
  if (LoadOpenFiles(checkpoint, targets, tick) != wanted)
    throw StorageError(checkpoint.path.string() + ": not every file that is needed was verified");
}

}  // namespace trainyard
