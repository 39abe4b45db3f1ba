#include "trainer/data/smart_cache.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <system_error>
#include <unordered_set>

#include "common/build_info.h"
#include "trainer/base/clock.h"
#include "trainer/base/error.h"
#include "trainer/base/hash.h"

namespace trainyard {
namespace {

constexpr double kRetrySeconds = 60;

// The next window is prepared from here on in an epoch, so that the readers of the one before are done with it.
int64_t FirstToMove(const Window& window) { return window.items / 8; }

}  // namespace

uint64_t StampOf(const std::vector<std::filesystem::path>& files, const std::string& preparation) {
  Xxh3Stream hash;
  const auto add = [&](std::string_view text) {
    hash.Update(std::as_bytes(std::span(text)));
    hash.Update(std::as_bytes(std::span("", 1)));
  };
  add(preparation);
  add(Build().commit);  // what another build has prepared may be other values
  for (const auto& file : files) {
    struct stat info {};
    const bool there = stat(file.c_str(), &info) == 0;
    // Who copies a file may copy its times as well, but for that of the change to the file's entry.
    const int64_t state[] = {there,
                             info.st_size,
                             info.st_mtim.tv_sec,
                             info.st_mtim.tv_nsec,
                             info.st_ctim.tv_sec,
                             info.st_ctim.tv_nsec,
                             static_cast<int64_t>(info.st_ino)};
    add(file.native());
    hash.Update(std::as_bytes(std::span(state)));
  }
  return hash.Digest();
}

SmartCache::SmartCache(const SmartCacheOptions& options, Prepare prepare, Stamp stamp)
    : options_(options),
      prepare_(std::move(prepare)),
      stamp_(std::move(stamp)),
      store_(options.folder, options.reserve_bytes),
      order_(options.window.items < options.length
                 ? std::optional<WindowOrder>(std::in_place, options.length, options.window, options.seed)
                 : std::nullopt),
      stamps_(std::make_unique<std::atomic<uint64_t>[]>(static_cast<size_t>(options.length))) {}

SmartCache::~SmartCache() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::vector<Volume> SmartCache::Get(const SampleKey& key, StageTimes* times) {
  if (options_.folder.empty()) return prepare_(key.id, times);
  OnEpoch(key);
  {
    const StageTimer timer(times ? &times->read : nullptr);
    if (auto kept = store_.Load(key.id, StampOfItem(key.id))) {
      ++hits_;
      return std::move(*kept);
    }
  }
  ++misses_;
  std::vector<Volume> volumes = prepare_(key.id, times);
  Keep(key.id, volumes);
  return volumes;
}

SmartCache::Counts SmartCache::counts() const { return {hits_, misses_, prepared_, failed_}; }

uint64_t SmartCache::StampOfItem(int64_t id) {
  std::atomic<uint64_t>& known = stamps_[static_cast<size_t>(id)];
  uint64_t stamp = known;
  if (stamp == 0) known = stamp = stamp_(id) | 1;
  return stamp;
}

void SmartCache::Keep(int64_t id, const std::vector<Volume>& volumes) {
  if (SteadySeconds() < retry_at_) return;
  // What leaves a window is removed when it moves. Without one, what a process left that was killed while it wrote is.
  if (!order_ && !swept_.exchange(true)) store_.Sweep([](int64_t) { return true; });
  try {
    store_.Save(id, StampOfItem(id), volumes);
  } catch (const StorageError& error) {
    ++failed_;
    retry_at_ = SteadySeconds() + kRetrySeconds;
    if (!warned_.exchange(true))
      std::fprintf(stderr,
                   "warning: data.cache.dir: %s; what cannot be kept is prepared each time it is read, and keeping is "
                   "tried again every minute\n",
                   error.what());
  }
}

void SmartCache::OnEpoch(const SampleKey& key) {
  const bool first = epoch_ < 0;  // of this process: what an earlier one kept may be another window's
  if (!order_ || key.epoch <= epoch_ || (!first && key.position < FirstToMove(options_.window))) return;
  const std::lock_guard lock(mutex_);
  if (key.epoch <= epoch_) return;
  epoch_ = key.epoch;
  if (!options_.in_background) return;
  try {
    if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error&) {  // at a limit of threads: samples are prepared when they are read
    return;
  }
  changed_.notify_all();
}

void SmartCache::Run() {
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 10);  // of this thread, behind what is read now
  for (int64_t done = -1;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || epoch_ > done; });
      if (stopping_) return;
      done = epoch_;
    }
    MoveWindow(done);
  }
}

bool SmartCache::Interrupted(int64_t epoch) const { return stopping_ || epoch_ != epoch; }

void SmartCache::MoveWindow(int64_t epoch) {
  const Window& window = options_.window;
  std::unordered_set<int64_t> wanted;
  for (int64_t i = 0; i < window.items + window.replace; ++i) wanted.insert(order_->ItemOf(epoch, i));
  store_.Sweep([&](int64_t id) { return wanted.contains(id) || id % options_.shares != options_.share; });
  for (int64_t i = options_.share; i < window.replace && !Interrupted(epoch); i += options_.shares) {
    const int64_t id = order_->ItemOf(epoch, window.items + i);
    if (SteadySeconds() < retry_at_) return;  // it would be prepared for nothing
    try {
      if (store_.Load(id, StampOfItem(id))) continue;  // an earlier process had prepared it
      const std::vector<Volume> volumes = prepare_(id, nullptr);
      ++prepared_;
      Keep(id, volumes);
    } catch (const std::exception&) {
      // Whoever reads it comes upon the same, where it has a place in the stream.
    }
  }
}

}  // namespace trainyard
