#include "operator/local/api/pod_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "operator/base/json_access.h"

namespace trainyard::local {
namespace {

constexpr double kNoteSeconds = 1;
constexpr size_t kBlock = 64 << 10;
// The containers write what is read here, and may make a file of any size out of nothing.
constexpr uint64_t kTailBytes = 64 << 20, kTimesBytes = 16 << 20;

const Json* FindContainer(const Json& statuses, const std::string& name) {
  for (const Json& status : statuses) {
    if (json::Text(status, "name") == name) return &status;
  }
  return nullptr;
}

// Where the last `lines` lines begin, or what is looked at for them.
uint64_t TailOffset(const RegularFile& file, int64_t lines) {
  int64_t seen = 0;
  uint64_t end = file.size();
  const uint64_t first = end - std::min(end, kTailBytes);
  while (end > first) {
    const uint64_t begin = end - std::min<uint64_t>(end - first, kBlock);
    const std::string block = file.Read(begin, end - begin);
    for (size_t i = block.size(); i > 0; --i) {
      if (block[i - 1] == '\n' && seen++ == lines) return begin + i;
    }
    end = begin;
  }
  return first;
}

std::filesystem::path TimesOf(std::filesystem::path log) { return log += ".times"; }

// Where the first growth at `since` or later began, of the newest that are looked at; the end when there was none.
uint64_t OffsetAt(const RegularFile& log, const std::filesystem::path& path, Time since) {
  const RegularFile times(TimesOf(path));
  if (!times.is_open()) return 0;  // of a version without
  std::string rest;
  const uint64_t size = times.size(), first = size - std::min(size, kTimesBytes);
  bool whole = first == 0;  // what comes is a line from its beginning on
  for (uint64_t at = first;;) {
    const std::string block = times.Read(at, std::min<uint64_t>(kBlock, size - at));
    if (block.empty()) return log.size();
    at += block.size();
    std::istringstream lines(rest + block);
    for (rest.clear(); std::getline(lines, rest) && !lines.eof(); rest.clear()) {
      if (!std::exchange(whole, true)) continue;
      std::istringstream line(rest);
      std::string time;
      uint64_t offset = 0;
      if (line >> time >> offset && ParseTime(time).value_or(since) >= After(since, -kNoteSeconds)) return offset;
    }
    if (rest.size() > kBlock) rest.clear();  // nothing of ours
  }
}

}  // namespace

void FreeBeginning(const std::filesystem::path& log, const LogLimits& limits) {
  const int file = OpenRegular(log, O_WRONLY);
  if (file < 0) return;
  struct stat info {};
  constexpr uint64_t kDiskBlock = 4096, kStatBlock = 512;
  if (fstat(file, &info) == 0 && static_cast<uint64_t>(info.st_blocks) * kStatBlock > limits.most) {
    const auto size = static_cast<uint64_t>(info.st_size);
    const uint64_t end = (size - std::min(size, limits.kept)) / kDiskBlock * kDiskBlock;
    if (end > 0) fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(end));
  }
  close(file);
}

void LogTimes::Note(Time now) {
  if (!noted_ || SecondsBetween(*noted_, now) >= kNoteSeconds) NoteEnd(now);
}

void LogTimes::NoteEnd(Time now) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(log_, error);
  if (error || size == size_) return;
  FreeBeginning(log_);
  if (const int file = OpenRegular(TimesOf(log_), O_WRONLY | O_CREAT | O_APPEND, 0644); file >= 0) {
    WriteAll(file, FormatTime(now) + " " + std::to_string(size_) + "\n");
    close(file);
  }
  size_ = size;
  noted_ = now;
}

std::string LogSource::Read() {
  bool cut = false;
  for (;;) {
    std::string text = file_->Read(at_, kBlock);
    // Asked after reading: what is there now was there then.
    if (const uint64_t there = file_->DataFrom(at_); there > at_) {
      at_ = there;
      cut = true;
      continue;
    }
    const size_t read = text.size();
    at_ += read;
    if (std::exchange(cut, false)) text.erase(0, text.find('\n') + 1);  // of a line that is longer than this, nothing
    if (!text.empty() || read == 0) return text;
  }
}

Result<LogSource> OpenLog(const std::filesystem::path& path, const Json& pod, const std::string& container,
                          const LogOptions& options) {
  const std::string pod_name = pod["metadata"]["name"];
  const Json* main = FindContainer(json::List(json::Field(pod, "spec"), "containers"), container);
  const Json* init = FindContainer(json::List(json::Field(pod, "spec"), "initContainers"), container);
  if (!main && !init) return Status(Code::kInvalid, "container " + container + " is not valid for pod " + pod_name);
  auto file = std::make_shared<const RegularFile>(path);
  if (!file->is_open()) {
    return Status(Code::kInvalid, "container \"" + container + "\" in pod \"" + pod_name + "\" is waiting to start");
  }
  const uint64_t since = options.since ? OffsetAt(*file, path, *options.since) : 0;
  const uint64_t tail = options.tail_lines ? TailOffset(*file, std::max<int64_t>(0, *options.tail_lines)) : 0;
  return LogSource(std::move(file), std::max(since, tail));
}

bool ContainerRuns(const Json& pod, const std::string& container) {
  for (const char* list : {"/status/containerStatuses", "/status/initContainerStatuses"}) {
    if (const Json statuses = pod.value(Json::json_pointer(list), Json::array());
        const Json* status = FindContainer(statuses, container)) {
      return !json::Field(*status, "state").contains("terminated");
    }
  }
  return false;
}

}  // namespace trainyard::local
