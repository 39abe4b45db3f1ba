#include "trainer/checkpoint/writer.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <new>
#include <span>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/hash.h"
#include "trainer/base/remove_folder.h"
#include "trainer/base/text.h"
#include "trainer/base/utf8.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/safetensors.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

// A rank could not write its part.
struct PartError : StorageError {
  PartError(int rank, const std::string& what) : StorageError(what), rank(rank) {}
  int rank;
};

// Weights of which one is no number, or infinite: no run goes on from them, and what they took the place of would be
// gone.
void RequireFinite(const SourceSlice& slice, std::span<const float> values) {
  if (!slice.key.starts_with("model.") && !slice.key.starts_with("ema.")) return;
  constexpr uint32_t kExponent = 0x7F800000;
  bool finite = true;
  for (const float value : values) finite &= (std::bit_cast<uint32_t>(value) & kExponent) != kExponent;
  if (!finite)
    throw NonFiniteError(slice.key + " is not finite after its last update, as of too large a learning rate");
}

std::string ShardName(int rank, int world) { return Format("rank-%05d-of-%05d.safetensors", rank, world); }

}  // namespace

CheckpointWriter::CheckpointWriter(WriterOptions options, std::shared_ptr<Store> store)
    : options_(std::move(options)),
      store_(std::make_shared<PrefixStore>(std::move(store), "checkpoint/")),
      signs_(
          store_, options_.rank, [this] { return cancelled_.load(); }, options_.life),
      last_(options_.resumed),
      thread_([this] { Loop(); }) {}

CheckpointWriter::~CheckpointWriter() {
  cancelled_ = true;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CheckpointWriter::Begin(int64_t step, std::vector<SourceSlice> slices, Json state, Sources sources) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !busy_; });
  if (error_) std::rethrow_exception(error_);
  job_ = Job{step, std::move(slices), std::move(state)};
  copied_ = sources == Sources::kStay;
  taken_ = false;
  busy_ = true;
  changed_.notify_all();
}

void CheckpointWriter::WaitCopied() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return copied_ || !busy_; });
}

void CheckpointWriter::WaitTaken() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return taken_ || !busy_; });
}

void CheckpointWriter::Finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !busy_ && !removing_; });
  if (error_) std::rethrow_exception(error_);
}

void CheckpointWriter::Settle(std::chrono::duration<double> deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, deadline, [&] { return !busy_ && !removing_; });
}

void CheckpointWriter::ThrowIfFailed() {
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
}

std::optional<CommittedCheckpoint> CheckpointWriter::last() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

void CheckpointWriter::Loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (!changed_.wait_for(lock, options_.owner_interval, [&] { return stopping_ || job_; })) {
      lock.unlock();
      const std::exception_ptr superseded = Superseded();
      lock.lock();
      if (!error_) error_ = superseded;
      continue;
    }
    if (!job_) return;
    Job job = std::move(*job_);
    job_.reset();
    lock.unlock();
    std::exception_ptr error;
    try {
      Save(job);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error) error_ = error;
    busy_ = false;
    removing_ = true;
    changed_.notify_all();
    lock.unlock();
    RemoveOutdated();
    lock.lock();
    removing_ = false;
    changed_.notify_all();
  }
}

std::exception_ptr CheckpointWriter::Superseded() const {
  if (options_.rank != 0) return nullptr;
  try {
    RequireOwner();
  } catch (const PeerError&) {
    return std::current_exception();
  } catch (const std::exception&) {  // The next save says what is wrong with the storage.
  }
  return nullptr;
}

std::string CheckpointWriter::Key(int64_t step, const std::string& what) {
  return Format("%lld/%s", static_cast<long long>(step), what.c_str());
}

void CheckpointWriter::CopySources(Job& job) {
  size_t total = 0;
  for (const SourceSlice& slice : job.slices) total += static_cast<size_t>(slice.end - slice.begin);
  if (slab_.size() != total) {  // The engine of another stage: its slab goes before ours is there.
    slab_ = {};
    try {
      slab_.resize(total);
    } catch (const std::bad_alloc&) {
      throw OutOfMemoryError(
          Format("out of memory: the copy of the weights and of the optimizer's state for the "
                 "checkpoint of step %lld takes %s more",
                 static_cast<long long>(job.step), HumanBytes(static_cast<double>(total * sizeof(float))).c_str()));
    }
  }
  float* to = slab_.data();
  for (SourceSlice& slice : job.slices) {
    slice.copy(to);
    slice.copy = {};  // and what it holds of an engine that may go now
    to += slice.end - slice.begin;
  }
  const std::lock_guard lock(mutex_);
  copied_ = taken_ = true;
  changed_.notify_all();
}

// Writes this rank's file; what the others are told about it. A rank that has nothing to write
// (without a common directory only rank 0 does) names no file.
Json CheckpointWriter::WritePart(const Job& job, const fs::path& temporary) {
  Json report = {{"slices", Json::array()}};
  if (job.slices.empty()) return report;
  try {
    const std::string file = ShardName(options_.rank, options_.world);
    const uint64_t needed = slab_.size() * sizeof(float) + (1 << 16);
    if (const auto free = FreeBytes(options_.directory); free.value_or(needed) < needed)
      throw StorageError("checkpoint.dir: " + options_.directory.string() + ": " +
                         HumanBytes(static_cast<double>(needed)) + " needed, " +
                         HumanBytes(static_cast<double>(*free)) + " free");
    RequireOwner();  // and that it is still the run's directory: one that was unmounted has no fence
    std::error_code error;
    fs::create_directories(temporary, error);
    if (error) throw StorageError("cannot create " + temporary.string() + ": " + error.message());
    std::vector<SafetensorsEntry> entries;
    const float* from = slab_.data();
    for (const SourceSlice& slice : job.slices) {
      const int64_t count = slice.end - slice.begin;
      const std::string name = slice.key + "#" + std::to_string(slice.begin);
      entries.push_back({name, {count}, {from, static_cast<size_t>(count)}});
      RequireFinite(slice, entries.back().data);
      report["slices"].push_back({slice.key, slice.shape, name, slice.begin, slice.end});
      from += count;
    }
    const WrittenFile written =
        WriteSafetensors(temporary / file, entries, {{"format", "pt"}}, [this, beats = true]() mutable {
          try {
            if (beats) signs_.Beat();
          } catch (const PeerError&) {  // whoever misses it judges; the disk is none the worse for it
            beats = false;
          }
        });
    report["file"] = file;
    report["bytes"] = written.bytes;
    report["xxh3"] = HexDigest(written.xxh3);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const NonFiniteError& error) {
    report["nonfinite"] = ValidUtf8(error.what());
  } catch (const std::exception& error) {
    report["error"] = ValidUtf8(error.what());
  }
  return report;
}

void CheckpointWriter::Save(Job& job) {
  const auto start = std::chrono::steady_clock::now();
  const fs::path temporary = options_.directory / (StepName(job.step) + ".tmp-" + TagOf(options_.writer));
  std::exception_ptr uncopied;
  Json report;
  try {
    CopySources(job);
    report = WritePart(job, temporary);
  } catch (const std::exception& error) {  // said like any other problem: the others would wait until this rank ends
    uncopied = std::current_exception();
    report["error"] = ValidUtf8(error.what());
  }
  store_->Set(Key(job.step, std::to_string(options_.rank)), report.dump());
  if (options_.rank == 0) {
    std::vector<fs::path> outdated;
    const Json verdict = CommitOrExplain(job, temporary, outdated);
    verdict_ = Key(job.step, "verdict");
    store_->Set(verdict_, verdict.dump());
    outdated_.insert(outdated_.end(), outdated.begin(), outdated.end());
  }
  if (uncopied) std::rethrow_exception(uncopied);
  const Json verdict = Json::parse(signs_.Wait(Key(job.step, "verdict"), 0, "rank 0 to commit " + StepName(job.step)));
  if (verdict.contains("peer")) throw PeerError(verdict["peer"].get<std::string>());
  if (verdict.contains("nonfinite")) throw NonFiniteError(verdict["nonfinite"].get<std::string>());
  if (verdict.contains("memory")) {
    const auto problem = verdict["memory"].get<std::string>();
    if (options_.rank == 0) throw OutOfMemoryError(problem);
    throw ToldError(problem);
  }
  if (verdict.contains("storage")) {
    const auto problem = verdict["storage"].get<std::string>();
    if (verdict["rank"] == options_.rank) throw StorageError(problem);
    throw ToldError(problem);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::lock_guard lock(mutex_);
  last_ = {job.step, verdict["bytes"].get<uint64_t>(),
           std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()), seconds};
}

// Rank 0's verdict for all ranks. `outdated`: what retention has moved out of the way.
Json CheckpointWriter::CommitOrExplain(const Job& job, const fs::path& temporary, std::vector<fs::path>& outdated) {
  Json verdict;
  try {
    return {{"bytes", Commit(job, temporary, outdated)}};
  } catch (const PeerError& error) {
    verdict["peer"] = ValidUtf8(error.what());
  } catch (const NonFiniteError& error) {
    verdict["nonfinite"] = ValidUtf8(error.what());
  } catch (const std::bad_alloc&) {
    verdict["memory"] = "saving " + StepName(job.step) + " failed: rank 0 is out of memory";
  } catch (const StoppedError&) {  // this rank's writer goes; nobody has asked the others to stop
    verdict["peer"] = "rank 0 ended before " + StepName(job.step) + " was complete";
  } catch (const PartError& error) {
    verdict = {{"storage", ValidUtf8(error.what())}, {"rank", error.rank}};
  } catch (const std::exception& error) {
    verdict = {{"storage", ValidUtf8(error.what())}, {"rank", 0}};
  }
  std::error_code ignored;
  fs::remove_all(temporary, ignored);
  // A newer owner removes what its predecessors had not finished: then the loss is not the storage's.
  try {
    RequireOwner();
  } catch (const PeerError& error) {
    return {{"peer", ValidUtf8(error.what())}};
  } catch (const std::exception&) {  // The fence cannot be read: the first error says more.
  }
  return verdict;
}

void CheckpointWriter::RequireOwner() const { Fence::RequireOwner(options_.directory, options_.writer); }

void CheckpointWriter::AsOwner(const std::function<void()>& change) const {
  Fence::AsOwner(options_.directory, options_.writer, change, [this] { return cancelled_.load(); });
}

// Waits for every rank's part; what the manifest says about them.
Manifest CheckpointWriter::Collect(const Job& job) {
  Manifest manifest{.writer = options_.writer, .step = job.step, .tensors = {}, .files = {}, .state = job.state};
  std::optional<PartError> failure;
  for (int rank = 0; rank < options_.world; ++rank) {
    const Json report = Json::parse(signs_.Wait(Key(job.step, std::to_string(rank)), rank,
                                                Format("rank %d's part of %s", rank, StepName(job.step).c_str())));
    if (report.contains("nonfinite"))
      throw NonFiniteError(StepName(job.step) + " is not saved: " + report["nonfinite"].get<std::string>());
    if (report.contains("error")) {
      if (!failure)
        failure.emplace(rank, Format("saving %s failed: rank %d: %s", StepName(job.step).c_str(), rank,
                                     report["error"].get<std::string>().c_str()));
      continue;
    }
    if (!report.contains("file")) continue;
    const auto file = report["file"].get<std::string>();
    manifest.files[file] = {report["bytes"].get<uint64_t>(), report["xxh3"].get<std::string>()};
    for (const Json& slice : report["slices"]) {
      TensorInfo& tensor = manifest.tensors[slice[0].get<std::string>()];
      tensor.shape = slice[1].get<std::vector<int64_t>>();
      tensor.slices.push_back({file, slice[2].get<std::string>(), slice[3].get<int64_t>(), slice[4].get<int64_t>()});
    }
  }
  for (int rank = 0; rank < options_.world; ++rank) store_->Delete(Key(job.step, std::to_string(rank)));
  if (!verdict_.empty()) store_->Delete(verdict_);  // Who has reported this step has heard of the one before.
  if (failure) throw *failure;
  for (auto& [key, tensor] : manifest.tensors) {
    std::sort(tensor.slices.begin(), tensor.slices.end(),
              [](const Slice& a, const Slice& b) { return a.begin < b.begin; });
  }
  return manifest;
}

// Returns the bytes of the step's files.
uint64_t CheckpointWriter::Commit(const Job& job, const fs::path& temporary, std::vector<fs::path>& outdated) {
  const Manifest manifest = Collect(job);
  manifest.RequireComplete(StepName(job.step));  // or retention would remove what is, for what nobody can read
  const std::string text = manifest.ToText();
  if (text.size() > Manifest::kMaxBytes)  // nobody would read it
    throw StorageError(Format("the manifest of %s would take %s, more than %s: train on fewer ranks",
                              StepName(job.step).c_str(), HumanBytes(static_cast<double>(text.size())).c_str(),
                              HumanBytes(static_cast<double>(Manifest::kMaxBytes)).c_str()));
  WriteFileAtomic(temporary / "manifest.json", text);
  const fs::path final = options_.directory / StepName(job.step);
  AsOwner([&] {
    std::error_code error;
    if (fs::exists(fs::symlink_status(final))) {  // also a link that leads nowhere
      const fs::path bad = final.string() + ".bad-" + TagOf(options_.writer);
      fs::remove_all(bad, error);
      fs::rename(final, bad, error);
      if (error) throw StorageError("cannot move " + final.string() + " aside: " + error.message());
    }
    fs::rename(temporary, final, error);
    if (error) throw StorageError("cannot commit " + final.string() + ": " + error.message());
    SyncDirectory(options_.directory);
    outdated = Announce(job.step);
  });
  uint64_t bytes = text.size();
  for (const auto& [name, file] : manifest.files) bytes += file.bytes;
  return bytes;
}

// Of a step that is durable by now: what fails here fails no save, and the next one does it again.
std::vector<fs::path> CheckpointWriter::Announce(int64_t step) try {
  WriteFileAtomic(options_.directory / "latest", StepName(step) + "\n");
  RequireOwner();  // Where there are no locks, this keeps the time short in which a loser could remove steps.
  std::optional<StuckFolder> stuck;
  std::vector<fs::path> outdated = Retain(options_.directory, Fence::Read(options_.directory), options_.writer, step,
                                          options_.retention, kept_, stuck);
  if (stuck) TellStuck(*stuck);
  return outdated;
} catch (const PeerError&) {
  throw;
} catch (const std::exception& error) {
  std::fprintf(stderr, "warning: %s is saved, but not in `latest`, or no older step was removed: %s\n",
               StepName(step).c_str(), error.what());
  return {};
}

// Once: what keeps one keeps the next one too.
void CheckpointWriter::TellStuck(const StuckFolder& stuck) {
  if (std::exchange(told_, true)) return;
  std::fprintf(stderr, "warning: cannot remove %s, which takes room until somebody does: %s\n", stuck.path.c_str(),
               stuck.error.message().c_str());
}

// The others have heard by now that the step is durable, and train on. So does this rank: a save that is due before all
// is removed comes first, and the rest after it.
void CheckpointWriter::RemoveOutdated() try {
  const auto unless_due = [this] {
    signs_.Beat();
    const std::lock_guard lock(mutex_);
    if (job_) throw StoppedError("the next save is due");
  };
  while (!outdated_.empty()) {
    const std::error_code error = RemoveFolder(outdated_.front(), unless_due);
    if (error) TellStuck({outdated_.front(), error});
    outdated_.erase(outdated_.begin());
  }
} catch (const std::exception&) {  // The next save does; where the run ends, whoever goes on with it.
}

}  // namespace trainyard
