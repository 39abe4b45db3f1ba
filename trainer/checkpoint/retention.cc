#include "trainer/checkpoint/retention.h"

#include <algorithm>
#include <optional>
#include <span>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/hash.h"
#include "trainer/checkpoint/reader.h"

namespace trainyard {
namespace {

// Nothing: there is no manifest, or it is bad. Throws StorageError where it could not be read: what nobody has seen is
// no reason to put a step aside.
std::optional<Standing> StandingOf(const fs::path& path, int64_t step, const Fence& fence) {
  try {
    const Manifest manifest = ReadManifest(path / "manifest.json");
    if (manifest.step != step) return {};
    return fence.Of(manifest.writer, step);
  } catch (const DamagedError&) {
    return {};
  }
}

}  // namespace

std::string TagOf(const Writer& writer) {
  return HexDigest(Xxh3Of(std::span(writer.job_uid))) + "-" + std::to_string(writer.attempt);
}

std::vector<fs::path> ListAside(const fs::path& directory) {
  std::vector<std::pair<fs::file_time_type, fs::path>> aside;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("step-") || name.find(".bad-") == std::string::npos ||
        name.find(".tmp-") != std::string::npos)
      continue;
    aside.emplace_back(fs::last_write_time(entry.path(), error), entry.path());
  }
  std::sort(aside.rbegin(), aside.rend());
  std::vector<fs::path> paths;
  for (const auto& [time, path] : aside) paths.push_back(path);
  return paths;
}

std::vector<fs::path> Retain(const fs::path& directory, const Fence& fence, const Writer& owner, int64_t committed,
                             const Retention& rules, std::set<int64_t>& kept, std::optional<StuckFolder>& stuck) {
  int64_t readable = 0;
  std::vector<fs::path> surplus;
  for (int64_t step : ListSteps(directory)) {
    const fs::path path = directory / StepName(step);
    // What has just been committed was written here, as this fence lets it.
    const bool settled = step == committed || (readable >= rules.keep_last && kept.contains(step));
    const std::optional<Standing> standing = settled ? Standing::kReadable : StandingOf(path, step, fence);
    kept.erase(step);
    if (standing == Standing::kUnlisted && step < committed) continue;
    if (standing != Standing::kReadable) {
      std::error_code error;
      fs::rename(path, path.string() + ".bad-" + TagOf(owner), error);
      if (error) surplus.push_back(path);  // one of this name lies aside already
    } else if (++readable > rules.keep_last && !(rules.keep_every > 0 && step % rules.keep_every == 0)) {
      surplus.push_back(path);
    } else {
      kept.insert(step);
    }
  }
  const std::vector<fs::path> aside = ListAside(directory);
  surplus.insert(surplus.end(), aside.begin() + static_cast<std::ptrdiff_t>(std::min(aside.size(), kAsideKept)),
                 aside.end());
  std::vector<fs::path> removed;
  for (const fs::path& path : surplus) {
    const fs::path old = path.string() + ".tmp-" + TagOf(owner) + "-old";
    std::error_code error;
    fs::rename(path, old, error);
    if (!error) {
      removed.push_back(old);
    } else if (!stuck) {
      stuck = {path, error};
    }
  }
  return removed;
}

}  // namespace trainyard
