#include "trainer/checkpoint/writer.h"

#include <algorithm>
#include <cstring>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/hash.h"
#include "trainer/base/text.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/safetensors.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

std::string Tag(const Writer& writer) { return writer.job_uid.substr(0, 8) + "-" + std::to_string(writer.attempt); }

std::string ShardName(int rank, int world) { return Format("rank-%05d-of-%05d.safetensors", rank, world); }

}  // namespace

CheckpointWriter::CheckpointWriter(WriterOptions options, std::shared_ptr<Store> store)
    : options_(std::move(options)), store_(std::move(store)), thread_([this] { Loop(); }) {}

CheckpointWriter::~CheckpointWriter() {
  cancelled_ = true;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CheckpointWriter::Begin(int64_t step, std::vector<SourceSlice> slices, Json state) {
  Finish();
  const std::lock_guard lock(mutex_);
  job_ = Job{step, std::move(slices), std::move(state)};
  copied_ = false;
  busy_ = true;
  changed_.notify_all();
}

void CheckpointWriter::WaitCopied() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return copied_ || !busy_; });
}

void CheckpointWriter::Finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !busy_; });
  if (error_) std::rethrow_exception(error_);
}

void CheckpointWriter::Settle(std::chrono::duration<double> deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, deadline, [&] { return !busy_; });
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
    changed_.wait(lock, [&] { return stopping_ || job_; });
    if (!job_) return;
    const Job job = std::move(*job_);
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
    changed_.notify_all();
  }
}

std::string CheckpointWriter::Key(int64_t step, const std::string& what) const {
  return Format("checkpoint/%lld/%s", static_cast<long long>(step), what.c_str());
}

std::string CheckpointWriter::WaitFor(int64_t step, const std::string& key, const std::string& what) {
  return store_->Wait(Key(step, key), options_.deadline, what, [&] { return cancelled_.load(); });
}

void CheckpointWriter::CopySources(const Job& job) {
  size_t total = 0;
  for (const SourceSlice& slice : job.slices) total += static_cast<size_t>(slice.end - slice.begin);
  slab_.resize(total);
  float* to = slab_.data();
  for (const SourceSlice& slice : job.slices) {
    const auto count = static_cast<size_t>(slice.end - slice.begin);
    std::memcpy(to, slice.data, count * sizeof(float));
    to += count;
  }
  const std::lock_guard lock(mutex_);
  copied_ = true;
  changed_.notify_all();
}

// Writes this rank's file; what the others are told about it. A rank that has nothing to write
// (without a common directory only rank 0 does) names no file.
Json CheckpointWriter::WritePart(const Job& job, const fs::path& temporary) const {
  Json report = {{"slices", Json::array()}};
  if (job.slices.empty()) return report;
  try {
    const std::string file = ShardName(options_.rank, options_.world);
    const uint64_t needed = slab_.size() * sizeof(float) + (1 << 16), free = FreeBytes(options_.directory);
    if (free < needed)
      throw StorageError("checkpoint.dir: " + options_.directory.string() + ": " +
                         HumanBytes(static_cast<double>(needed)) + " needed, " + HumanBytes(static_cast<double>(free)) +
                         " free");
    std::error_code error;
    fs::create_directories(temporary, error);
    if (error) throw StorageError("cannot create " + temporary.string() + ": " + error.message());
    std::vector<SafetensorsEntry> entries;
    const float* from = slab_.data();
    for (const SourceSlice& slice : job.slices) {
      const int64_t count = slice.end - slice.begin;
      const std::string name = slice.key + "#" + std::to_string(slice.begin);
      entries.push_back({name, {count}, {from, static_cast<size_t>(count)}});
      report["slices"].push_back({slice.key, slice.shape, name, slice.begin, slice.end});
      from += count;
    }
    const WrittenFile written = WriteSafetensors(temporary / file, entries, {{"format", "pt"}});
    report["file"] = file;
    report["bytes"] = written.bytes;
    report["xxh3"] = HexDigest(written.xxh3);
  } catch (const std::exception& error) {
    report["error"] = error.what();
  }
  return report;
}

void CheckpointWriter::Save(const Job& job) {
  const auto start = std::chrono::steady_clock::now();
  CopySources(job);
  const fs::path temporary = options_.directory / (StepName(job.step) + ".tmp-" + Tag(options_.writer));
  store_->Set(Key(job.step, std::to_string(options_.rank)), WritePart(job, temporary).dump());
  if (options_.rank == 0) {
    std::string verdict = "ok";
    try {
      Commit(job, temporary);
    } catch (const PeerError& error) {
      verdict = std::string("peer ") + error.what();
    } catch (const std::exception& error) {
      verdict = std::string("storage ") + error.what();
    }
    if (verdict != "ok") {
      std::error_code ignored;
      fs::remove_all(temporary, ignored);
    }
    store_->Set(Key(job.step, "verdict"), verdict);
  }
  const std::string verdict = WaitFor(job.step, "verdict", "rank 0 to commit " + StepName(job.step));
  if (verdict.starts_with("peer ")) throw PeerError(verdict.substr(5));
  if (verdict.starts_with("storage ")) throw StorageError(verdict.substr(8));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::lock_guard lock(mutex_);
  last_ = {job.step, slab_.size() * sizeof(float) * static_cast<uint64_t>(options_.world),
           std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()), seconds};
}

void CheckpointWriter::Commit(const Job& job, const fs::path& temporary) {
  Manifest manifest{.writer = options_.writer, .step = job.step, .tensors = {}, .files = {}, .state = job.state};
  std::string failures;
  for (int rank = 0; rank < options_.world; ++rank) {
    const Json report = Json::parse(
        WaitFor(job.step, std::to_string(rank), Format("rank %d's part of %s", rank, StepName(job.step).c_str())));
    if (report.contains("error")) {
      if (failures.empty()) failures = Format("rank %d: %s", rank, report["error"].get<std::string>().c_str());
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
  if (!failures.empty()) throw StorageError("saving " + StepName(job.step) + " failed: " + failures);
  for (auto& [key, tensor] : manifest.tensors) {
    std::sort(tensor.slices.begin(), tensor.slices.end(),
              [](const Slice& a, const Slice& b) { return a.begin < b.begin; });
  }
  WriteFileAtomic(temporary / "manifest.json", manifest.ToJson().dump(1) + "\n");
  if (!Fence::Read(options_.directory).IsLast(options_.writer)) {
    throw PeerError(options_.directory.string() + ": another attempt owns the checkpoints; " + StepName(job.step) +
                    " of attempt " + std::to_string(options_.writer.attempt) + " is not committed");
  }
  const fs::path final = options_.directory / StepName(job.step);
  std::error_code error;
  if (fs::exists(final)) {
    fs::path bad = final.string() + ".bad-" + Tag(options_.writer);
    fs::remove_all(bad, error);
    fs::rename(final, bad, error);
    if (error) throw StorageError("cannot move " + final.string() + " aside: " + error.message());
  }
  fs::rename(temporary, final, error);
  if (error) throw StorageError("cannot commit " + final.string() + ": " + error.message());
  SyncDirectory(options_.directory);
  WriteFileAtomic(options_.directory / "latest", StepName(job.step) + "\n");
  Retain(job.step);
}

// A step above the one just committed belongs to a past that this run did not resume from: it is
// moved aside, so that it neither counts nor hides anything.
void CheckpointWriter::Retain(int64_t committed) const {
  std::vector<int64_t> steps;
  for (int64_t step : ListSteps(options_.directory)) {
    const fs::path path = options_.directory / StepName(step);
    std::error_code ignored;
    if (step > committed) {
      fs::rename(path, path.string() + ".bad-" + Tag(options_.writer), ignored);
    } else {
      steps.push_back(step);
    }
  }
  for (size_t i = static_cast<size_t>(options_.keep_last); i < steps.size(); ++i) {
    if (options_.keep_every > 0 && steps[i] % options_.keep_every == 0) continue;
    std::error_code ignored;
    fs::remove_all(options_.directory / StepName(steps[i]), ignored);
  }
}

}  // namespace trainyard
