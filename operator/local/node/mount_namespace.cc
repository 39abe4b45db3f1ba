#include "operator/local/node/mount_namespace.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace trainyard::local {
namespace {

using Kind = MountStep::Kind;

bool WriteText(const char* path, std::string_view text) {
  const int file = open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0) return false;
  const bool written = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(file);
  return written;
}

bool MountTmpfs(const char* target, const char* options) {
  return mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, options) == 0;
}

// What exists is not opened: it may be a pipe, or not ours to write to.
bool MakeFile(const char* target) {
  const int file = open(target, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file >= 0) close(file);
  return file >= 0 || errno == EEXIST;
}

// A remount in a user namespace must keep the flags that the mount had outside.
bool MakeReadOnly(const char* target) {
  struct statvfs state;
  if (statvfs(target, &state) != 0) return false;
  unsigned long flags = MS_REMOUNT | MS_BIND | MS_RDONLY;
  const std::pair<unsigned long, unsigned long> kept[] = {{ST_NOSUID, MS_NOSUID},         {ST_NODEV, MS_NODEV},
                                                          {ST_NOEXEC, MS_NOEXEC},         {ST_NOATIME, MS_NOATIME},
                                                          {ST_NODIRATIME, MS_NODIRATIME}, {ST_RELATIME, MS_RELATIME}};
  for (const auto& [seen, flag] : kept) {
    if (state.f_flag & seen) flags |= flag;
  }
  return mount(nullptr, target, nullptr, flags, nullptr) == 0;
}

// The old root lies on the new one for a moment, and goes.
bool EnterRoot(const char* target) {
  return chdir(target) == 0 && syscall(SYS_pivot_root, ".", ".") == 0 && umount2(".", MNT_DETACH) == 0 &&
         chdir("/") == 0;
}

bool MakeStep(const MountStep& step) {
  const char *target = step.target.c_str(), *source = step.source.c_str();
  switch (step.kind) {
    case Kind::kStaging:
      return MountTmpfs(target, "mode=755") && mount(nullptr, target, nullptr, MS_UNBINDABLE, nullptr) == 0 &&
             chdir(target) == 0;
    case Kind::kTmpfs:
      return MountTmpfs(target, source);
    case Kind::kFolder:
      return mkdir(target, 0755) == 0 || errno == EEXIST;
    case Kind::kFile:
      return MakeFile(target);
    case Kind::kSymlink:
      return symlink(source, target) == 0;
    case Kind::kBind:
      return mount(source, target, nullptr, MS_BIND | MS_REC, nullptr) == 0;
    case Kind::kMove:
      return mount(source, target, nullptr, MS_MOVE, nullptr) == 0;
    case Kind::kReadOnly:
      return MakeReadOnly(target);
    case Kind::kEnter:
      return EnterRoot(target);
    case Kind::kDetach:
      return umount2(target, MNT_DETACH) == 0;
  }
  return false;
}

std::string MapOf(unsigned id) { return std::to_string(id) + " " + std::to_string(id) + " 1\n"; }

}  // namespace

MountNamespace::MountNamespace(std::vector<MountStep> steps)
    : steps_(std::move(steps)), user_map_(MapOf(geteuid())), group_map_(MapOf(getegid())) {}

int MountNamespace::Unshare() const {
  const bool root = geteuid() == 0;
  if (unshare(root ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) != 0) return errno;
  if (root) return 0;
  // Without setgroups a group map may be written by anyone (user_namespaces(7)).
  const bool mapped = WriteText("/proc/self/setgroups", "deny") && WriteText("/proc/self/uid_map", user_map_) &&
                      WriteText("/proc/self/gid_map", group_map_);
  return mapped ? 0 : errno;
}

int MountNamespace::Make(int& failed) const {
  failed = -1;
  // What is mounted outside later still appears; nothing that is mounted here does outside.
  if (mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0) return errno;
  for (const MountStep& step : steps_) {
    ++failed;
    if (!MakeStep(step) && !step.optional) return errno;
  }
  return 0;
}

// In the job's terms: where a volume is held in between is nobody's business.
std::string MountNamespace::Describe(int failed) const {
  if (failed < 0) return "making mounts private";
  const MountStep& step = steps_.at(static_cast<size_t>(failed));
  if (step.source.empty() || step.kind == Kind::kTmpfs) return "preparing mount " + step.target;
  std::string source = step.source, target = step.target;
  for (const MountStep& other : steps_) {
    if (other.kind != Kind::kBind) continue;
    if (other.target == source) source = other.source;
    if (other.source == target) target = other.target;
  }
  return "mount " + source + " at " + (target.starts_with("root/") ? target.substr(4) : target);
}

}  // namespace trainyard::local
