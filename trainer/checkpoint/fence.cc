#include "trainer/checkpoint/fence.h"

#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/text.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

}  // namespace

bool Fence::Readable(const Writer& writer, int64_t step) const {
  for (size_t i = 0; i < owners.size(); ++i) {
    if (owners[i].writer != writer) continue;
    if (step <= owners[i].resumed_step) return false;
    return std::all_of(owners.begin() + static_cast<std::ptrdiff_t>(i) + 1, owners.end(),
                       [&](const Owner& later) { return step <= later.resumed_step; });
  }
  return false;
}

int64_t Fence::LastAttempt(const std::string& job_uid) const {
  int64_t last = 0;
  for (const Owner& owner : owners) {
    if (owner.writer.job_uid == job_uid) last = std::max(last, owner.writer.attempt);
  }
  return last;
}

Fence Fence::Read(const fs::path& directory) {
  Fence fence;
  const fs::path file = directory / "fence";
  if (!fs::exists(file)) return fence;
  try {
    const Json root = Json::parse(ReadFile(file));
    for (const Json& owner : root.at("owners")) {
      fence.owners.push_back({{owner.at("job_uid").get<std::string>(), owner.at("attempt").get<int64_t>()},
                              owner.at("resumed_step").get<int64_t>()});
    }
  } catch (const Json::exception& error) {
    throw StorageError(file.string() + ": not a fence: " + error.what());
  }
  return fence;
}

void Fence::Take(const fs::path& directory, const Writer& writer, int64_t resumed_step) {
  Fence fence = Read(directory);
  if (const int64_t last = fence.LastAttempt(writer.job_uid); last >= writer.attempt) {
    throw PeerError(Format("%s: attempt %lld of this job owns the checkpoints; this is attempt %lld", directory.c_str(),
                           static_cast<long long>(last), static_cast<long long>(writer.attempt)));
  }
  fence.owners.push_back({writer, resumed_step});
  Json owners = Json::array();
  for (const Owner& owner : fence.owners) {
    owners.push_back(
        {{"job_uid", owner.writer.job_uid}, {"attempt", owner.writer.attempt}, {"resumed_step", owner.resumed_step}});
  }
  WriteFileAtomic(directory / "fence", Json{{"owners", owners}}.dump(1) + "\n");
}

}  // namespace trainyard
