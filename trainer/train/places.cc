#include "trainer/train/places.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/metrics/record.h"

namespace trainyard {
namespace {

[[noreturn]] void Refuse(const std::string& field, const std::string& problem) {
  throw ConfigError(field + ": " + problem);
}

// The directory, or where it would be made.
void RequireWritable(const std::string& field, const fs::path& directory) {
  fs::path there = fs::absolute(directory).lexically_normal();
  std::error_code error;
  while (!fs::exists(there, error) && there.has_relative_path()) there = there.parent_path();
  if (!fs::is_directory(there, error))
    Refuse(field, "cannot write in " + directory.string() + ": " + there.string() + " is not a directory");
  if (access(there.c_str(), W_OK | X_OK) != 0)
    Refuse(field, "cannot write in " + directory.string() + ": " + there.string() + ": " + std::strerror(errno));
}

void RequireFile(const std::string& field, const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) Refuse(field, path.string() + ": no such file");
  if (!fs::is_regular_file(path, error)) Refuse(field, path.string() + ": not a file");
  if (access(path.c_str(), R_OK) != 0) Refuse(field, path.string() + ": " + std::strerror(errno));
}

}  // namespace

fs::path IdentityFile(const Config& config) { return fs::path(config.run.dir) / "config.json"; }

bool HasBegun(const Config& config) {
  std::error_code ignored;
  return fs::exists(IdentityFile(config), ignored);
}

void CheckPlaces(const Config& c) {
  RequireWritable("run.dir", c.run.dir);
  RequireWritable("checkpoint.dir", c.checkpoint.dir);
  std::error_code error;
  if (!fs::exists(c.data.path, error)) Refuse("data.path", c.data.path + ": no such file or directory");
  // A run that has begun goes on from its own checkpoints; what it came from may be gone by then.
  const bool begun = HasBegun(c);
  if (!c.init.from.empty() && !begun) RequireFile("init.from", c.init.from);
  if (const std::string& resume = c.checkpoint.resume; resume != "auto" && resume != "never" && !begun) {
    if (!fs::is_directory(resume, error))
      Refuse("checkpoint.resume", resume + ": no such directory; expected auto, never or a checkpoint's directory");
  }
  if (c.train.record.empty()) return;
  // The run makes run.dir, and no other folder for a record.
  const fs::path folder = fs::absolute(c.train.record).lexically_normal().parent_path();
  if (folder != fs::absolute(c.run.dir).lexically_normal()) {
    if (!fs::exists(folder, error)) Refuse("train.record", folder.string() + ": no such directory");
    RequireWritable("train.record", folder);
  }
  CheckRecordFile(c.train.record);
}

}  // namespace trainyard
