#include "trainer/checkpoint/fence.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/text.h"
#include "trainer/checkpoint/sealed_json.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kTroublePatience(10);

void Write(const fs::path& directory, const Fence& fence) {
  Json owners = Json::array();
  for (const Fence::Owner& owner : fence.owners) {
    Json entry = {{"job_uid", owner.writer.job_uid}, {"attempt", owner.writer.attempt}, {"resumed_step", nullptr}};
    if (owner.resumed_step) entry["resumed_step"] = *owner.resumed_step;
    if (!owner.source.empty()) entry["source"] = owner.source;
    owners.push_back(entry);
  }
  WriteFileAtomic(directory / "fence", Seal({{"owners", owners}}));
}

Fence::Owner OwnerOf(const Json& json) {
  Fence::Owner owner{{json.at("job_uid").get<std::string>(), json.at("attempt").get<int64_t>()}, {}, {}};
  if (!json.at("resumed_step").is_null()) owner.resumed_step = json.at("resumed_step").get<int64_t>();
  owner.source = json.value("source", "");
  return owner;
}

}  // namespace

Standing Fence::Of(const Writer& writer, int64_t step) const {
  const auto owner =
      std::find_if(owners.begin(), owners.end(), [&](const Owner& candidate) { return candidate.writer == writer; });
  if (owner == owners.end() || !owner->resumed_step) return Standing::kUnlisted;
  const bool on_the_way = step > *owner->resumed_step && std::all_of(owner + 1, owners.end(), [&](const Owner& later) {
                            return !later.resumed_step || step <= *later.resumed_step;
                          });
  return on_the_way ? Standing::kReadable : Standing::kFencedOff;
}

std::string Fence::Superseded(const Writer& writer) const {
  const auto attempt = static_cast<long long>(writer.attempt);
  const Writer& last = owners.back().writer;
  return Format(
      "attempt %lld%s owns the checkpoints now, not attempt %lld any more: this one was superseded and ends, "
      "the newer one goes on",
      static_cast<long long>(last.attempt), last.job_uid == writer.job_uid ? "" : (" of job " + last.job_uid).c_str(),
      attempt);
}

int64_t Fence::LastAttempt(const std::string& job_uid) const {
  int64_t last = 0;
  for (const Owner& owner : owners) {
    if (owner.writer.job_uid == job_uid) last = std::max(last, owner.writer.attempt);
  }
  return last;
}

const Fence::Owner* Fence::LastStarted() const {
  const auto last = std::find_if(owners.rbegin(), owners.rend(), [](const Owner& o) { return o.resumed_step; });
  return last == owners.rend() ? nullptr : &*last;
}

bool Fence::HasStarted(const std::string& job_uid) const {
  return std::any_of(owners.begin(), owners.end(),
                     [&](const Owner& o) { return o.writer.job_uid == job_uid && o.resumed_step; });
}

Fence Fence::Read(const fs::path& directory) {
  Fence fence;
  const fs::path file = directory / "fence";
  std::error_code error;
  if (!fs::exists(file, error) && !error) return fence;
  const std::string text = ReadFile(file);  // what cannot be read now may be a good one
  try {
    const Json root = Unseal(text, file.string());
    for (const Json& owner : root.at("owners")) fence.owners.push_back(OwnerOf(owner));
  } catch (const Json::exception&) {
    throw StorageError(file.string() + ": not a fence");
  } catch (const StorageError& problem) {
    throw StorageError(std::string(problem.what()) + ". " + kLostFenceRemedy);
  }
  return fence;
}

void Fence::Take(const fs::path& directory, const Writer& writer, const std::function<bool()>& stop) {
  const FenceLock lock(directory, stop);
  Fence fence = Read(directory);
  if (const int64_t last = fence.LastAttempt(writer.job_uid); last >= writer.attempt) {
    throw PeerError(Format("%s: attempt %lld of this job owns the checkpoints; this is attempt %lld", directory.c_str(),
                           static_cast<long long>(last), static_cast<long long>(writer.attempt)));
  }
  fence.owners.push_back({writer, {}, {}});
  Write(directory, fence);
}

namespace {

// A fence that is not there any more was taken by nobody: its folder was.
void RequireLast(const fs::path& directory, const Fence& fence, const Writer& writer) {
  if (fence.owners.empty())
    throw StorageError(
        Format("checkpoint.dir: %s: what attempt %lld has written there is gone: was the folder removed, "
               "renamed or emptied? Nothing more can be saved; where it was renamed, the run goes on "
               "from there",
               directory.c_str(), static_cast<long long>(writer.attempt)));
  if (!fence.IsLast(writer)) throw PeerError(directory.string() + ": " + fence.Superseded(writer));
}

}  // namespace

void Fence::Record(const fs::path& directory, const Writer& writer, int64_t resumed_step, const std::string& source) {
  const FenceLock lock(directory);
  Fence fence = Read(directory);
  RequireLast(directory, fence, writer);
  fence.owners.back().resumed_step = resumed_step;
  fence.owners.back().source = source;
  Write(directory, fence);
}

void Fence::RequireOwner(const fs::path& directory, const Writer& writer) {
  const Fence fence = Read(directory);
  RequireLast(directory, fence, writer);
}

void Fence::AsOwner(const fs::path& directory, const Writer& writer, const std::function<void()>& change,
                    const std::function<bool()>& stop) {
  const FenceLock lock(directory, stop);
  RequireOwner(directory, writer);
  change();
}

LockAnswer LockAnswerOf(int error) {
  switch (error) {
    case EWOULDBLOCK:
    case EINTR:
      return LockAnswer::kHeld;
    case EOPNOTSUPP:
    case ENOSYS:
    case EINVAL:
      return LockAnswer::kNoLocks;
    default:
      return LockAnswer::kTrouble;
  }
}

FenceLock::FenceLock(const fs::path& directory, const std::function<bool()>& stop,
                     std::chrono::duration<double> deadline) {
  const fs::path file = directory / "fence.lock";
  fd_ = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) throw StorageError("cannot open " + file.string() + ": " + std::strerror(errno));
  try {
    Acquire(file, stop, deadline);
  } catch (...) {
    close(fd_);
    throw;
  }
}

void FenceLock::Acquire(const fs::path& file, const std::function<bool()>& stop,
                        std::chrono::duration<double> deadline) const {
  const Clock::time_point begin = Clock::now();
  while (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    const LockAnswer answer = LockAnswerOf(error);
    if (answer == LockAnswer::kNoLocks) return;
    if (stop && stop()) throw StoppedError("stopped on request while waiting for " + file.string());
    const auto waited = Clock::now() - begin;
    if (answer == LockAnswer::kTrouble && waited > std::min<std::chrono::duration<double>>(deadline, kTroublePatience))
      throw StorageError("cannot lock " + file.string() + ": " + std::strerror(error) +
                         "; without the lock an older attempt might still write there");
    if (waited > deadline)
      throw PeerError("waited " + HumanSeconds(deadline.count()) + " for " + file.string() +
                      ", which another attempt holds: one that is frozen in the middle of a commit must end first");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

FenceLock::~FenceLock() { close(fd_); }

}  // namespace trainyard
