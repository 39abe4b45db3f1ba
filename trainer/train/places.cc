#include "trainer/train/places.h"

#include <unistd.h>

#include <cerrno>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/metrics/record.h"

namespace trainyard {
namespace {

[[noreturn]] void Refuse(const std::string& field, const std::string& problem) {
  throw ConfigError(field + ": " + problem);
}

// A path that may not be looked at is a mistake of the field.
fs::file_status LookFor(const std::string& field, const fs::path& path) try {
  return LookAt(path);
} catch (const RefusedPathError& refused) {
  Refuse(field, refused.what());
}

// A right that the system refuses is a mistake; an answer that it could not get is none.
void RequireRight(const std::string& field, const std::string& problem, const fs::path& path, int right) {
  if (access(path.c_str(), right) != 0) ThrowUnwritable(field + ": " + problem + path.string(), errno);
}

// The directory, or where it would be made.
void RequireWritable(const std::string& field, const fs::path& directory) {
  fs::path there = fs::absolute(directory).lexically_normal();
  while (!fs::exists(LookFor(field, there)) && there.has_relative_path()) there = there.parent_path();
  if (!fs::is_directory(LookFor(field, there)))
    Refuse(field, "cannot write in " + directory.string() + ": " + there.string() + " is not a directory");
  RequireRight(field, "cannot write in " + directory.string() + ": ", there, W_OK | X_OK);
}

void RequireFile(const std::string& field, const fs::path& path) {
  const fs::file_status file = LookFor(field, path);
  if (!fs::exists(file)) Refuse(field, path.string() + ": no such file");
  if (!fs::is_regular_file(file)) Refuse(field, path.string() + ": not a file");
  RequireRight(field, "", path, R_OK);
}

}  // namespace

fs::path IdentityFile(const Config& config) { return fs::path(config.run.dir) / "config.json"; }

bool HasBegun(const Config& config) { return fs::exists(LookFor("run.dir", IdentityFile(config))); }

void CheckPlaces(const Config& c) {
  RequireWritable("run.dir", c.run.dir);
  RequireWritable("checkpoint.dir", c.checkpoint.dir);
  for (const char* name : {"fence", "fence.lock", "latest"}) {
    const fs::path file = fs::path(c.checkpoint.dir) / name;
    if (fs::is_directory(LookFor("checkpoint.dir", file)))
      Refuse("checkpoint.dir", file.string() + " is a directory; remove it, or name another checkpoint.dir");
  }
  for (const char* name : {"export", "best"}) {
    const fs::path folder = fs::path(c.run.dir) / name;
    const fs::file_status there = fs::symlink_status(folder);
    if (fs::exists(there) && !fs::is_directory(LookFor("run.dir", folder)))
      Refuse("run.dir", folder.string() + " is not a directory; remove it, or name another run.dir");
  }
  if (const fs::path file = fs::path(c.run.dir) / "export/model.safetensors";
      fs::is_directory(LookFor("run.dir", file)))
    Refuse("run.dir", file.string() + " is a directory; remove it, or name another run.dir");
  if (!fs::exists(LookFor("data.path", c.data.path))) Refuse("data.path", c.data.path + ": no such file or directory");
  // A run that has begun goes on from its own checkpoints; what it came from may be gone by then.
  const bool begun = HasBegun(c);
  if (!c.init.from.empty() && !begun) RequireFile("init.from", c.init.from);
  if (const std::string& resume = c.checkpoint.resume; resume != "auto" && resume != "never" && !begun) {
    if (!fs::is_directory(LookFor("checkpoint.resume", resume)))
      Refuse("checkpoint.resume", resume + ": no such directory; expected auto, never or a checkpoint's directory");
  }
  if (c.train.record.empty()) return;
  // The run makes run.dir, and no other folder for a record.
  const fs::path folder = fs::absolute(c.train.record).lexically_normal().parent_path();
  if (folder != fs::absolute(c.run.dir).lexically_normal()) {
    if (!fs::exists(LookFor("train.record", folder))) Refuse("train.record", folder.string() + ": no such directory");
    RequireWritable("train.record", folder);
  }
  if (fs::absolute(c.train.record).lexically_normal() == fs::absolute(c.run.dir + "/log.jsonl").lexically_normal())
    Refuse("train.record", c.train.record + " is the run's log; name another file");
  CheckRecordFile(c.train.record);
}

}  // namespace trainyard
