#include "trainer/data/loader.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <system_error>

#include "trainer/base/clock.h"
#include "trainer/base/error.h"
#include "trainer/base/text.h"

namespace trainyard {
namespace {

// A thread that is woken to read ahead would push aside the one that woke it, which has taken its batch and goes on to
// train (sched(7): of SCHED_BATCH none does). Their shares of a busy processor stay equal. Whoever runs under another
// policy than the usual one has chosen it.
void LetTrainingGoFirst() {
  int policy = SCHED_OTHER;
  sched_param parameters{};
  if (pthread_getschedparam(pthread_self(), &policy, &parameters) == 0 && policy == SCHED_OTHER)
    pthread_setschedparam(pthread_self(), SCHED_BATCH, &parameters);
}

}  // namespace

Loader::Loader(const Dataset& dataset, SampleStream stream, Collate collate, const ShareLayout& layout, int64_t first,
               int64_t end, const LoaderOptions& options)
    : dataset_(dataset),
      stream_(std::move(stream)),
      collate_(std::move(collate)),
      layout_(layout),
      options_(options),
      per_step_((layout.end - layout.begin + layout.micro - 1) / layout.micro),
      next_(first * per_step_),
      end_(end * per_step_) {
  try {
    for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this] { Run(); });
  } catch (const std::system_error& error) {
    const std::string started = std::to_string(threads_.size());
    Stop();
    throw Error(ExitCode::kInternal, "data.workers: the system gave " + started + " of " +
                                         std::to_string(options.threads) + " threads: " + error.what());
  }
}

Loader::~Loader() { Stop(); }

void Loader::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Share Loader::Next() {
  Share share;
  for (int64_t m = 0; m < per_step_; ++m) share.push_back(Take());
  return share;
}

LoaderTimes Loader::times() const {
  const DatasetTimes data = dataset_.times();
  return {.read = std::max(0.0, read_seconds_ - data.decode - data.transform),
          .decode = data.decode,
          .transform = data.transform,
          .collate = collate_seconds_,
          .wait = wait_seconds_,
          .cache_hits = data.cache_hits,
          .cache_misses = data.cache_misses};
}

std::unique_ptr<Batch> Loader::Take() {
  const double start = SteadySeconds();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || (!open_.empty() && open_.front()->ready); });
  if (failure_) std::rethrow_exception(failure_);
  const std::unique_ptr<MicroBatch> taken = std::move(open_.front());
  open_.pop_front();
  changed_.notify_all();
  wait_seconds_ += SteadySeconds() - start;
  if (taken->error) std::rethrow_exception(taken->error);
  return std::move(taken->batch);
}

void Loader::Run() {
  LetTrainingGoFirst();
  std::unique_lock lock(mutex_);
  for (;;) {
    Work work;
    try {
      changed_.wait(lock, [&] { return stopping_ || failure_ || (work = Claim()).micro_batch; });
    } catch (...) {
      failure_ = std::current_exception();  // An order that throws, or no memory for one more micro-batch.
      changed_.notify_all();
    }
    if (stopping_ || failure_) return;
    Read(work, lock);
  }
}

Loader::Work Loader::Claim() {
  for (;;) {
    for (const auto& micro_batch : open_) {
      if (micro_batch->started < micro_batch->keys.size()) return {micro_batch.get(), micro_batch->started++};
    }
    if (next_ >= end_ || static_cast<int64_t>(open_.size()) >= options_.prefetch) return {};
    OpenNext();
  }
}

void Loader::OpenNext() {
  const int64_t step = next_ / per_step_, m = next_ % per_step_;
  ++next_;
  const int64_t begin = layout_.begin + m * layout_.micro, end = std::min(begin + layout_.micro, layout_.end);
  auto micro_batch = std::make_unique<MicroBatch>();
  const std::vector<int64_t>& ends = options_.stage_ends;
  const int64_t stages_done = std::upper_bound(ends.begin(), ends.end(), step) - ends.begin();
  for (int64_t place = begin; place < end; ++place) {
    SampleKey key = stream_.At(step * layout_.global_batch + place);
    key.stage = std::max<int64_t>(0, std::min(stages_done, std::ssize(ends) - 1));
    micro_batch->keys.push_back(key);
  }
  micro_batch->samples.resize(micro_batch->keys.size());
  if (options_.hash_inputs) micro_batch->hashes.assign(micro_batch->keys.size(), 0);
  open_.push_back(std::move(micro_batch));
}

void Loader::Read(const Work& work, std::unique_lock<std::mutex>& lock) {
  MicroBatch& micro_batch = *work.micro_batch;
  const SampleKey key = micro_batch.keys[work.index];
  lock.unlock();
  std::unique_ptr<Sample> sample;
  uint64_t hash = 0;
  std::string skipped;
  std::exception_ptr error;
  const double start = SteadySeconds();
  try {
    sample = dataset_.Read(key);
    if (options_.hash_inputs) hash = dataset_.Hash(*sample);
  } catch (const DataError& bad) {
    if (options_.skip_bad) {
      skipped = bad.what();
    } else {
      error = std::current_exception();
    }
  } catch (...) {
    error = std::current_exception();
  }
  read_seconds_ += SteadySeconds() - start;
  lock.lock();
  micro_batch.samples[work.index] = std::move(sample);
  if (options_.hash_inputs) micro_batch.hashes[work.index] = hash;
  if (!skipped.empty()) micro_batch.skipped.push_back({key.id, skipped});
  if (error && (!micro_batch.error || work.index < micro_batch.error_at)) {
    micro_batch.error = error;
    micro_batch.error_at = work.index;
  }
  if (++micro_batch.read < micro_batch.keys.size()) return;
  lock.unlock();
  Finish(micro_batch);
  lock.lock();
  micro_batch.ready = true;
  changed_.notify_all();
}

void Loader::Finish(MicroBatch& micro_batch) {
  if (micro_batch.error) return;
  const double start = SteadySeconds();
  try {
    std::vector<const Sample*> samples;
    for (const auto& sample : micro_batch.samples) samples.push_back(sample.get());
    micro_batch.batch = collate_(samples);
    for (const SampleKey& key : micro_batch.keys) micro_batch.batch->ids.push_back(key.id);
    micro_batch.batch->stage = micro_batch.keys.front().stage;
    micro_batch.batch->input_hashes = std::move(micro_batch.hashes);
    std::sort(micro_batch.skipped.begin(), micro_batch.skipped.end(),
              [](const SkippedSample& a, const SkippedSample& b) { return a.id < b.id; });
    micro_batch.batch->skipped = std::move(micro_batch.skipped);
  } catch (...) {
    micro_batch.error = std::current_exception();
  }
  micro_batch.samples.clear();
  collate_seconds_ += SteadySeconds() - start;
}

}  // namespace trainyard
