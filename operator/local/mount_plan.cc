#include "operator/local/mount_plan.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>

namespace trainyard::local {
namespace {

namespace fs = std::filesystem;
using Kind = MountStep::Kind;

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
bool IsOpen(const fs::path& path) {
  std::error_code error;
  return (fs::status(path, error).permissions() & fs::perms::others_write) != fs::perms::none && !error;
}

// Paths without a leading slash are in the staging area.
constexpr char kNewRoot[] = "root";

class Planner {
 public:
  Status Place(const Mount& mount) {
    std::error_code error;
    // The links of this machine stay in force: /var/run/x is /run/x.
    fs::path at = fs::weakly_canonical(mount.at, error);
    if (error) at = fs::path(mount.at).lexically_normal();  // below a folder of others: nothing to see there
    if (at == "/") return Status(Code::kInvalid, "mount path " + mount.at + ": the root cannot be a volume");
    placed_.push_back({at.string(), mount.source, mount.read_only});
    return Status::Ok();
  }

  Result<std::vector<MountStep>> Plan(const std::string& staging) {
    std::sort(placed_.begin(), placed_.end(), [](const Mount& a, const Mount& b) { return a.at < b.at; });
    if (Status status = FindReplaced(); !status.ok()) return status;
    Add(Kind::kStaging, staging);
    HoldSources();
    // Inner folders first: the copy of an outer one then has them.
    for (auto folder = replaced_.rbegin(); folder != replaced_.rend(); ++folder) Replace(*folder);
    const std::string root = replaced_.contains("/") ? kNewRoot : "";
    for (size_t i = 0; i < placed_.size(); ++i) Attach(i, root);
    for (const std::string& folder : replaced_) {
      if (!IsOpen(folder)) Add(Kind::kReadOnly, folder == "/" ? root : root + folder);
    }
    Add(root.empty() ? Kind::kDetach : Kind::kEnter, root.empty() ? "." : root);
    return std::move(steps_);
  }

 private:
  void Add(Kind kind, std::string target, std::string source = "", bool optional = false) {
    steps_.push_back({kind, std::move(target), std::move(source), optional});
  }

  // The volume that `at` lies in, if any: what is missing there is made in the volume.
  const Mount* Around(const std::string& at) const {
    const Mount* found = nullptr;
    for (const Mount& mount : placed_) {
      if (IsBelow(at, mount.at)) found = &mount;
    }
    return found;
  }

  Status FindReplaced() {
    for (const Mount& mount : placed_) {
      if (Exists(mount.at) || Around(mount.at)) continue;
      fs::path above = fs::path(mount.at).parent_path();
      while (!Exists(above)) above = above.parent_path();
      if (!IsFolder(above))
        return Status(Code::kInvalid, "mount path " + mount.at + ": " + above.string() + " is not a folder");
      replaced_.insert(above.string());
    }
    return Status::Ok();
  }

  // Before anything moves or hides them.
  void HoldSources() {
    for (size_t i = 0; i < placed_.size(); ++i) {
      Add(IsFolder(placed_[i].source) ? Kind::kFolder : Kind::kFile, Held(i));
      Add(Kind::kBind, Held(i), placed_[i].source);
    }
  }
  static std::string Held(size_t i) { return "volume-" + std::to_string(i); }

  void Replace(const std::string& folder) {
    const std::string copy = folder == "/" ? kNewRoot : "folder-" + std::to_string(copies_++);
    Add(Kind::kFolder, copy);
    Add(Kind::kTmpfs, copy, IsOpen(folder) ? "mode=1777" : "mode=755");
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
      const std::string target = copy + "/" + entry.path().filename().string();
      if (entry.is_symlink(error)) {
        Add(Kind::kSymlink, target, fs::read_symlink(entry.path(), error).string(), true);
        continue;
      }
      Add(entry.is_directory(error) ? Kind::kFolder : Kind::kFile, target);
      Add(Kind::kBind, target, entry.path().string(), true);
    }
    if (folder != "/") Add(Kind::kMove, folder, copy);
  }

  void Attach(size_t i, const std::string& root) {
    const Mount& mount = placed_[i];
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
    if (mount.read_only) Add(Kind::kReadOnly, root + mount.at);
  }
  // The deepest replaced folder above `at`; there is one.
  const std::string* FolderAbove(const std::string& at) const {
    const std::string* found = nullptr;
    for (const std::string& folder : replaced_) {
      if (IsBelow(at, folder)) found = &folder;
    }
    return found;
  }

  std::vector<Mount> placed_;
  std::set<std::string> replaced_;
  std::vector<MountStep> steps_;
  int copies_ = 0;
};

}  // namespace

Result<std::vector<MountStep>> PlanMounts(const std::vector<Mount>& mounts, const std::string& staging) {
  Planner planner;
  for (const Mount& mount : mounts) {
    if (Status status = planner.Place(mount); !status.ok()) return status;
  }
  return planner.Plan(staging);
}

}  // namespace trainyard::local
