#include "operator/local/node/mount_plan.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

namespace trainyard::local {
namespace {

namespace fs = std::filesystem;
using Kind = MountStep::Kind;

// Paths without a leading slash are in the staging area.
constexpr char kNewRoot[] = "root";
// Each costs a mount, and a namespace may have 100,000 (/proc/sys/fs/mount-max).
constexpr size_t kMaxEntries = 20000;

bool IsBelow(const std::string& path, const std::string& folder) {
  return folder == "/" || (path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/');
}

// What cannot be looked at is not there.
bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}
bool IsFolder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// A folder for everyone's short-lived files.
bool IsTemporary(const fs::path& path) {
  constexpr fs::perms kOpen = fs::perms::sticky_bit | fs::perms::others_write;
  std::error_code error;
  const fs::perms mode = fs::status(path, error).permissions();
  return !error && (mode & kOpen) == kOpen;
}

Status Refused(const Mount& mount, const std::string& why) {
  return Status(Code::kInvalid, "mount path " + mount.at + ": " + why);
}

class Planner {
 public:
  explicit Planner(const std::vector<Mount>& mounts) : mounts_(mounts) {}

  Result<std::vector<MountStep>> Plan(const std::string& staging) {
    if (Status status = FindReplaced(); !status.ok()) return status;
    Add(Kind::kStaging, staging);
    HoldSources();
    // Inner folders first: the copy of an outer one then has them.
    for (auto folder = replaced_.rbegin(); folder != replaced_.rend(); ++folder) {
      if (Status status = Replace(*folder); !status.ok()) return status;
    }
    const std::string root = replaced_.contains("/") ? kNewRoot : "";
    for (size_t i = 0; i < mounts_.size(); ++i) Attach(i, root);
    // Only now: inner volumes may have had to be made in outer ones.
    for (const Mount& mount : mounts_) {
      if (mount.read_only) Add(Kind::kReadOnly, root + mount.at);
    }
    for (const std::string& folder : replaced_) {
      if (!IsTemporary(folder)) Add(Kind::kReadOnly, folder == "/" ? root : root + folder);
    }
    Add(root.empty() ? Kind::kDetach : Kind::kEnter, root.empty() ? "." : root);
    return std::move(steps_);
  }

 private:
  void Add(Kind kind, std::string target, std::string source = "", bool optional = false) {
    steps_.push_back({kind, std::move(target), std::move(source), optional});
  }

  // The other volume that `at` lies in, if any: what is missing there is made in that volume.
  const Mount* Around(const std::string& at) const { return FindMount(mounts_, fs::path(at).parent_path().string()); }

  Status FindReplaced() {
    for (const Mount& mount : mounts_) {
      if (Exists(mount.at) || Around(mount.at)) continue;
      fs::path above = fs::path(mount.at).parent_path();
      while (!Exists(above)) above = above.parent_path();
      if (!IsFolder(above)) return Refused(mount, above.string() + " is not a folder");
      replaced_.insert(above.string());
    }
    return Status::Ok();
  }

  // Before anything moves or hides them.
  void HoldSources() {
    for (size_t i = 0; i < mounts_.size(); ++i) {
      Add(IsFolder(mounts_[i].source) ? Kind::kFolder : Kind::kFile, Held(i));
      Add(Kind::kBind, Held(i), mounts_[i].source);
    }
  }
  static std::string Held(size_t i) { return "volume-" + std::to_string(i); }

  Status Replace(const std::string& folder) {
    const std::string copy = folder == "/" ? kNewRoot : "folder-" + std::to_string(copies_++);
    Add(Kind::kFolder, copy);
    Add(Kind::kTmpfs, copy, IsTemporary(folder) ? "mode=1777" : "mode=755");
    std::error_code error;
    size_t entries = 0;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
      if (++entries > kMaxEntries)
        return Status(Code::kInvalid, "a mount path in " + folder + " does not exist, and the folder has over " +
                                          std::to_string(kMaxEntries) + " entries: make the mount path");
      CopyEntry(*entry, copy + "/" + entry->path().filename().string());
    }
    // A folder that cannot be entered had nothing to show.
    if (error && access(folder.c_str(), X_OK) == 0)
      return Status(Code::kInvalid, "a mount path in " + folder + " does not exist, and the folder cannot be listed (" +
                                        error.message() + "): make the mount path, or choose another");
    if (folder != "/") Add(Kind::kMove, folder, copy);
    return Status::Ok();
  }

  void CopyEntry(const fs::directory_entry& entry, const std::string& target) {
    const std::string path = entry.path().string();
    std::error_code error;
    if (entry.is_symlink(error)) {
      // One that a volume belongs under leads nowhere, or it would have been followed.
      const bool broken = std::any_of(mounts_.begin(), mounts_.end(),
                                      [&](const Mount& m) { return m.at == path || IsBelow(m.at, path); });
      if (!broken) Add(Kind::kSymlink, target, fs::read_symlink(path, error).string(), true);
      return;
    }
    Add(entry.is_directory(error) ? Kind::kFolder : Kind::kFile, target);
    Add(Kind::kBind, target, path, true);
  }

  void Attach(size_t i, const std::string& root) {
    const Mount& mount = mounts_[i];
    const bool folder = IsFolder(mount.source);
    if (const Mount* around = Around(mount.at); around || !Exists(mount.at)) {
      std::string made = around ? around->at : *FolderAbove(mount.at);
      const fs::path rest = fs::path(mount.at).lexically_relative(made);
      if (made == "/") made.clear();
      for (auto part = rest.begin(); part != rest.end(); ++part) {
        made += "/" + part->string();
        Add(folder || std::next(part) != rest.end() ? Kind::kFolder : Kind::kFile, root + made);
      }
    }
    Add(Kind::kBind, root + mount.at, Held(i));
  }
  // The deepest replaced folder above `at`; there is one.
  const std::string* FolderAbove(const std::string& at) const {
    const std::string* found = nullptr;
    for (const std::string& folder : replaced_) {
      if (IsBelow(at, folder)) found = &folder;
    }
    return found;
  }

  const std::vector<Mount>& mounts_;
  std::set<std::string> replaced_;
  std::vector<MountStep> steps_;
  int copies_ = 0;
};

void SortByPath(std::vector<Mount>& mounts) {
  std::stable_sort(mounts.begin(), mounts.end(), [](const Mount& a, const Mount& b) { return a.at < b.at; });
}

}  // namespace

const Mount* FindMount(const std::vector<Mount>& mounts, const std::string& path) {
  const Mount* found = nullptr;
  for (const Mount& mount : mounts) {
    if (path == mount.at || IsBelow(path, mount.at)) found = &mount;  // an inner one comes later
  }
  return found;
}

Result<std::vector<Mount>> ResolveMounts(std::vector<Mount> mounts) {
  SortByPath(mounts);
  std::vector<Mount> resolved;
  for (size_t i = 0; i < mounts.size(); ++i) {
    std::string at = mounts[i].at;
    size_t around = i;
    for (size_t j = 0; j < i; ++j) {
      if (IsBelow(at, mounts[j].at)) around = j;
    }
    if (around != i) {
      at = resolved[around].at + at.substr(mounts[around].at.size());
    } else {
      std::error_code error;
      const fs::path real = fs::weakly_canonical(at, error);
      if (!error) at = real.string();  // else below a folder of others: nothing to see there
    }
    if (at == "/") return Refused(mounts[i], "the root cannot be a volume");
    resolved.push_back({.at = at, .source = mounts[i].source, .read_only = mounts[i].read_only});
  }
  SortByPath(resolved);
  return resolved;
}

Result<std::vector<MountStep>> PlanMounts(const std::vector<Mount>& mounts, const std::string& staging) {
  return Planner(mounts).Plan(staging);
}

}  // namespace trainyard::local
