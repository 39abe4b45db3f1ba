#include "operator/local/api/journal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <sstream>
#include <vector>

#include "common/json.h"
#include "operator/base/file.h"
#include "operator/base/json_access.h"

namespace trainyard::local {
namespace {

namespace fs = std::filesystem;

constexpr char kSnapshot[] = "api.json", kPrefix[] = "api-", kSuffix[] = ".journal";
constexpr size_t kLongJournal = 64 << 20;

uint64_t VersionInName(const fs::path& path) {
  return std::strtoull(path.filename().c_str() + sizeof kPrefix - 1, nullptr, 10);
}

// By version, so that they are read in the order in which they were written.
Result<std::vector<fs::path>> Journals(const fs::path& folder) {
  std::vector<std::pair<uint64_t, fs::path>> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(kPrefix) && name.ends_with(kSuffix))
      found.emplace_back(VersionInName(entry->path()), entry->path());
  }
  if (error) return Status(Code::kInvalid, folder.string() + ": cannot be read: " + error.message());
  std::sort(found.begin(), found.end());
  std::vector<fs::path> paths;
  for (auto& [version, path] : found) paths.push_back(std::move(path));
  return paths;
}

// Nothing when there is none. Whatever else keeps it from being read is kInvalid: it may hold every job.
Result<std::optional<std::string>> ReadSaved(const fs::path& path) {
  std::error_code error;
  if (fs::symlink_status(path, error).type() == fs::file_type::not_found) return std::optional<std::string>();
  const fs::file_status status = fs::status(path, error);
  if (error) return Status(Code::kInvalid, path.string() + ": cannot be read: " + error.message());
  if (!fs::is_regular_file(status)) return Status(Code::kInvalid, path.string() + ": is no regular file");
  Result<std::string> text = ReadWhole(path);
  if (!text.ok()) return Status(Code::kInvalid, text.status().message());
  return std::optional(std::move(*text));
}

std::string Dumped(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

// A line of a journal: what is wrong with it, if it can be read as JSON.
Status CheckChange(const Json& change) {
  const Json &collection = json::Field(change, "collection"), &key = json::Field(change, "key");
  if (!json::Field(change, "version").is_number_unsigned() || !collection.is_string() || !key.is_string() ||
      !change.contains("object"))
    return Status(Code::kInvalid, "is no change: allowed: version, collection, key, object");
  const Json& object = change["object"];
  return object.is_null() ? Status::Ok() : MemoryApi::CheckSaved(collection, key, object);
}

// Applies changes that `dump` does not hold yet, up to the first that is missing or cut short: the disk was
// full. Returns the newest version that the file speaks of, applied or not. kInvalid when one that cannot be read is
// no line cut short: nobody writes behind such a one, and no part of a line is JSON. REQUIRES: MemoryApi loads `dump`.
Result<uint64_t> Replay(const fs::path& path, Json& dump) {
  Result<std::optional<std::string>> text = ReadSaved(path);
  if (!text.ok()) return text.status();
  uint64_t newest = VersionInName(path);
  bool whole = true;
  std::istringstream file(std::move(*text).value_or(""));
  int number = 1;
  for (std::string line; std::getline(file, line); ++number) {
    const Json change = ParseJson(line);
    const bool last = file.peek() == std::istringstream::traits_type::eof();
    if (change.is_discarded() && last) break;
    if (const Status damage = CheckChange(change); !damage.ok())
      return Status(Code::kInvalid,
                    path.string() + ": line " + std::to_string(number) + " is damaged" +
                        (change.is_discarded() ? "" : " (" + damage.message() + ")") +
                        (last ? "" : ", and changes follow it") +
                        "; without them (remove the lines from there on) jobs would go on from an older state, with"
                        " another --state-dir from none");
    const uint64_t version = change["version"].get<uint64_t>(), before = dump["version"].get<uint64_t>();
    newest = std::max(newest, version);
    whole = whole && version <= before + 1;
    if (!whole || version <= before) continue;
    dump["version"] = version;
    Json& collection = dump["collections"][json::Text(change, "collection")];
    const std::string key = json::Text(change, "key");
    if (const Json& object = change["object"]; object.is_null()) {
      collection.erase(key);
    } else {
      collection[key] = object;
    }
  }
  return newest;
}

}  // namespace

Journal::~Journal() {
  if (api_) api_->FollowChanges(nullptr);
  const MutexLock lock(mutex_);
  if (file_ >= 0) close(file_);
}

Status Journal::Open(MemoryApi& api) {
  if (Status status = Load(api); !status.ok()) return status;
  api_ = &api;
  api.FollowChanges(
      [this](uint64_t version, const std::string& collection, const std::string& key, const Json* object) {
        const Json change = {
            {"version", version}, {"collection", collection}, {"key", key}, {"object", object ? *object : Json()}};
        Append(Dumped(change) + "\n");
      });
  return Snapshot();
}

Status Journal::Load(MemoryApi& api) const {
  const fs::path path = folder_ / kSnapshot;
  const Result<std::vector<fs::path>> journals = Journals(folder_);
  if (!journals.ok()) return journals.status();
  const Result<std::optional<std::string>> text = ReadSaved(path);
  if (!text.ok()) return text.status();
  Json dump = {{"version", 0u}, {"collections", Json::object()}};
  if (*text) {
    dump = ParseJson(**text);
    if (Status status = api.Load(dump); !status.ok()) return status.With(path.string());
  } else if (journals->empty()) {
    return Status::Ok();
  } else if (VersionInName(journals->front()) > api.version()) {
    return Status(Code::kInvalid, path.string() + ": is missing, and " + journals->front().filename().string() +
                                      " goes on from what it held: put it back, or start afresh with another"
                                      " --state-dir");
  }
  uint64_t newest = 0;
  for (const fs::path& journal : *journals) {
    const Result<uint64_t> read = Replay(journal, dump);
    if (!read.ok()) return read.status();
    newest = std::max(newest, *read);
  }
  // Versions go on above all that was ever written: what was left out can never be taken for a later change.
  dump["version"] = std::max(newest, dump["version"].get<uint64_t>());
  return api.Load(dump).With(folder_.string());
}

Status Journal::Save(bool force) {
  {
    const MutexLock lock(mutex_);
    struct stat written {};
    if (file_ >= 0 && fstat(file_, &written) == 0 && written.st_nlink == 0) due_ = true;
    if (!force && !due_ && bytes_ < kLongJournal) return Status::Ok();
  }
  return Snapshot();
}

// New changes go to the next journal before the objects are read: whatever the snapshot lacks is there.
Status Journal::Snapshot() {
  const Result<std::vector<fs::path>> old = Journals(folder_);
  if (!old.ok()) return old.status();
  {
    const fs::path next = folder_ / (kPrefix + std::to_string(api_->version()) + kSuffix);
    const MutexLock lock(mutex_);
    due_ = true;
    const int file = open(next.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0) return Status(Code::kInvalid, folder_.string() + ": cannot be written: " + std::strerror(errno));
    if (file_ >= 0) close(file_);
    file_ = file;
    bytes_ = 0;
    due_ = false;
    current_ = next;
  }
  Status status = WriteWhole(folder_ / kSnapshot, Dumped(api_->Dump()), 0600, true);
  const MutexLock lock(mutex_);
  if (!status.ok()) {
    due_ = true;
    return status;
  }
  for (const fs::path& path : *old) {
    std::error_code ignored;  // the snapshot's version is above all that one may hold
    if (path != current_) fs::remove(path, ignored);
  }
  return Status::Ok();
}

void Journal::Append(const std::string& line) {
  const MutexLock lock(mutex_);
  if (file_ < 0 || due_) return;  // Replay would stop at the gap, and so this stops as well
  due_ = WriteAll(file_, line) != 0;
  bytes_ += line.size();
}

}  // namespace trainyard::local
