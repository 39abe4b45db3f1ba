#undef _FORTIFY_SOURCE
#include "tests/unit/power_loss.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>

namespace trainyard::power_loss {
namespace {

namespace fs = std::filesystem;

std::mutex mutex;
std::string root;  // empty: nothing is written down
int syncs = 0, left_out = -1;
int lock_error = 0, failing_locks = 0;
std::vector<Event> events;

template <class F>
F* Real(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

// The absolute path if it lies below the root.
std::optional<std::string> Inside(int directory, const char* path) {
  if (root.empty()) return {};
  fs::path whole = path;
  if (whole.is_relative()) {
    std::error_code error;
    const fs::path base = directory == AT_FDCWD ? fs::current_path(error)
                                                : fs::read_symlink("/proc/self/fd/" + std::to_string(directory), error);
    whole = base / whole;
  }
  const std::string text = whole.lexically_normal().string();
  return text.starts_with(root + "/") ? std::optional(text) : std::nullopt;
}

void Note(Event event) {
  const std::lock_guard lock(mutex);
  if (!root.empty()) events.push_back(std::move(event));
}

std::string Content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

int Sync(int fd, const char* name) {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/fd/" + std::to_string(fd), error);
  const std::string text = path.string();
  if (root.empty() || (text != root && !text.starts_with(root + "/"))) return Real<int(int)>(name)(fd);
  {
    const std::lock_guard lock(mutex);
    if (syncs++ == left_out) return 0;
  }
  const bool directory = fs::is_directory(path, error);
  Note({directory ? Event::kSyncDirectory : Event::kSyncFile, text, "", directory ? "" : Content(text)});
  return 0;
}

int Open(const char* name, int directory, const char* path, int flags, mode_t mode) {
  const auto inside = (flags & O_CREAT) ? Inside(directory, path) : std::nullopt;
  struct stat info {};
  const bool made = inside && stat(inside->c_str(), &info) != 0;
  const int fd = Real<int(int, const char*, int, mode_t)>(name)(directory, path, flags, mode);
  if (fd >= 0 && made) Note({Event::kCreate, *inside, "", ""});
  return fd;
}

}  // namespace

void Start(const fs::path& directory, int leave_out) {
  const std::lock_guard lock(mutex);
  root = directory.string();
  events.clear();
  syncs = 0;
  left_out = leave_out;
}

std::vector<Event> Stop() {
  const std::lock_guard lock(mutex);
  root.clear();
  return std::move(events);
}

int Syncs() { return syncs; }

void FailLocks(int error, int calls) {
  const std::lock_guard lock(mutex);
  lock_error = error;
  failing_locks = calls;
}

void Announce(const std::string& text) { Note({Event::kAnnounce, text, "", ""}); }

namespace {

// The directory and its files as they are named now, and as they were named when it was last synced.
struct Node {
  using Entries = std::map<std::string, std::shared_ptr<Node>>;
  struct Change {
    std::string removed, set;  // empty: none
    std::shared_ptr<Node> node;
  };
  bool directory = false;
  std::string durable;  // a file's content
  Entries now, synced;
  std::vector<Change> since;

  void Apply(const Change& change) {
    Do(now, change);
    since.push_back(change);
  }
  static void Do(Entries& entries, const Change& change) {
    if (!change.removed.empty()) entries.erase(change.removed);
    if (!change.set.empty()) entries[change.set] = change.node;
  }
};

struct Model {
  fs::path root;
  std::shared_ptr<Node> top = std::make_shared<Node>(Node{.directory = true});

  std::shared_ptr<Node> At(const fs::path& path) const {
    std::shared_ptr<Node> node = top;
    const fs::path below = path.lexically_relative(root);
    if (below == ".") return node;
    for (const fs::path& part : below) node = node->now.at(part.string());
    return node;
  }
  std::shared_ptr<Node> Parent(const fs::path& path) const { return At(path.parent_path()); }

  void Apply(const Event& event) {
    const fs::path path = event.path;
    const std::string name = path.filename();
    switch (event.kind) {
      case Event::kCreate:
      case Event::kMakeDirectory:
        Parent(path)->Apply({"", name, std::make_shared<Node>(Node{.directory = event.kind == Event::kMakeDirectory})});
        break;
      case Event::kRename:
        Parent(path)->Apply({name, fs::path(event.other).filename(), At(path)});
        break;
      case Event::kRemove:
        Parent(path)->Apply({name, "", nullptr});
        break;
      case Event::kSyncFile:
        At(path)->durable = event.content;
        break;
      case Event::kSyncDirectory: {
        const auto node = At(path);
        node->synced = node->now;
        node->since.clear();
        break;
      }
      case Event::kAnnounce:
        break;
    }
  }
};

// Which changes that were not synced are there all the same: by their number in the whole tree.
using Kept = std::function<bool(size_t)>;

void Collect(const Node& node, const std::string& prefix, const Kept& kept, size_t* number, Tree* tree) {
  Node::Entries entries = node.synced;
  for (const Node::Change& change : node.since) {
    if (kept((*number)++)) Node::Do(entries, change);
  }
  if (entries.empty() && !prefix.empty()) (*tree)[prefix] = "";
  for (const auto& [name, child] : entries) {
    if (child->directory) {
      Collect(*child, prefix + name + "/", kept, number, tree);
    } else {
      (*tree)[prefix + name] = child->durable;
    }
  }
}

}  // namespace

void ForEachRemainder(const std::vector<Event>& log, size_t moment, const fs::path& directory,
                      const std::function<void(const Tree&)>& check) {
  Model model{.root = directory};
  for (size_t i = 0; i < moment; ++i) model.Apply(log[i]);
  size_t changes = 0;
  auto remainder = [&](const Kept& kept) {
    Tree tree;
    changes = 0;
    Collect(*model.top, "", kept, &changes, &tree);
    check(tree);
  };
  remainder([](size_t) { return false; });
  remainder([](size_t) { return true; });
  const size_t count = changes;
  for (size_t chosen = 0; chosen < count; ++chosen) {
    remainder([=](size_t number) { return number == chosen; });
    remainder([=](size_t number) { return number != chosen; });
  }
}

void Materialise(const Tree& tree, const fs::path& directory) {
  fs::remove_all(directory);
  fs::create_directories(directory);
  for (const auto& [name, content] : tree) {
    if (name.ends_with("/")) {
      fs::create_directories(directory / name);
      continue;
    }
    fs::create_directories((directory / name).parent_path());
    std::ofstream(directory / name, std::ios::binary) << content;
  }
}

}  // namespace trainyard::power_loss

// The C library's functions, as the program under test calls them.
using namespace trainyard::power_loss;

namespace {

mode_t ModeOf(int flags, va_list arguments) { return (flags & O_CREAT) ? va_arg(arguments, mode_t) : 0; }

int Lock(int fd, int operation) {
  {
    const std::lock_guard lock(mutex);
    if (failing_locks > 0) {
      --failing_locks;
      errno = lock_error;
      return -1;
    }
  }
  return Real<int(int, int)>("flock")(fd, operation);
}

int Renamed(int result, const std::optional<std::string>& from, const char* to) {
  if (result == 0 && from) Note({Event::kRename, *from, to, ""});
  return result;
}

int Removed(int result, const std::optional<std::string>& path) {
  if (result == 0 && path) Note({Event::kRemove, *path, "", ""});
  return result;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  return Open("openat", AT_FDCWD, path, flags, mode);
}
int openat(int directory, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  return Open("openat", directory, path, flags, mode);
}
int flock(int fd, int operation) noexcept { return Lock(fd, operation); }
int fsync(int fd) { return Sync(fd, "fsync"); }
int fdatasync(int fd) { return Sync(fd, "fdatasync"); }
int mkdir(const char* path, mode_t mode) noexcept {
  const int result = Real<int(const char*, mode_t)>("mkdir")(path, mode);
  if (const auto inside = Inside(AT_FDCWD, path); result == 0 && inside) Note({Event::kMakeDirectory, *inside, "", ""});
  return result;
}
int rename(const char* from, const char* to) noexcept {
  return Renamed(Real<int(const char*, const char*)>("rename")(from, to), Inside(AT_FDCWD, from), to);
}
int unlink(const char* path) noexcept {
  return Removed(Real<int(const char*)>("unlink")(path), Inside(AT_FDCWD, path));
}
int rmdir(const char* path) noexcept { return Removed(Real<int(const char*)>("rmdir")(path), Inside(AT_FDCWD, path)); }
int remove(const char* path) noexcept {
  return Removed(Real<int(const char*)>("remove")(path), Inside(AT_FDCWD, path));
}
int unlinkat(int directory, const char* path, int flags) noexcept {
  const auto inside = Inside(directory, path);
  return Removed(Real<int(int, const char*, int)>("unlinkat")(directory, path, flags), inside);
}

}  // extern "C"
