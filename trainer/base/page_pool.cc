#include "trainer/base/page_pool.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <new>

namespace trainyard {
namespace {

constexpr size_t kSpread = 4;                      // addresses for a byte of blocks: gaps take nothing else
constexpr size_t kGrowthBytes = size_t{64} << 20;  // becomes writable at once
constexpr double kSecondsBetweenLooks = 1;
constexpr size_t kEighth = 8;
constexpr size_t kPartial = 8;  // chunks of which blocks have less than all

size_t RoundUp(size_t size, size_t to) { return (size + to - 1) / to * to; }

}  // namespace

std::unique_ptr<PagePool> PagePool::Reserve(size_t most_bytes, double (*seconds)()) {
  rlimit addresses{};
  if (getrlimit(RLIMIT_AS, &addresses) != 0 || addresses.rlim_cur != RLIM_INFINITY) return nullptr;
  if (most_bytes > SIZE_MAX / kSpread / 2) return nullptr;
  const size_t size = RoundUp(most_bytes, kChunkBytes) * kSpread;
  // One chunk more, so that the first one can begin where a huge page may. What may not be touched is not charged.
  void* mapped = mmap(nullptr, size + kChunkBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* first = static_cast<std::byte*>(mapped);
  const size_t before = (kChunkBytes - reinterpret_cast<uintptr_t>(mapped) % kChunkBytes) % kChunkBytes;
  if (before > 0) munmap(first, before);
  if (before < kChunkBytes) munmap(first + before + size, kChunkBytes - before);
  return std::unique_ptr<PagePool>(new PagePool(first + before, size, most_bytes, seconds));
}

PagePool::~PagePool() { munmap(base_, reserved_); }

void* PagePool::Allocate(size_t bytes) {
  if (bytes > most_bytes_) return nullptr;
  const size_t size = RoundUp(bytes, kBorderBytes);
  const std::lock_guard lock(mutex_);
  if (size > most_bytes_ - std::min(used_, most_bytes_)) return nullptr;
  const size_t where = Fitting(size);
  if (!Grow(where + size)) return nullptr;
  blocks_.emplace(where, size);
  if (const auto range = free_.find(where); range != free_.end()) {
    const size_t behind = where + range->second;
    TakeOut(range);
    if (behind > where + size) Free(where + size, behind - where - size);
  }
  end_ = std::max(end_, where + size);
  used_ += size;
  most_used_ = std::max(most_used_, used_);
  const double now = seconds_();
  Touch(where, size, now);
  GiveBackGaps();
  GiveBackOld(now);
  return base_ + where;
}

void PagePool::Release(void* block) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(static_cast<size_t>(static_cast<std::byte*>(block) - base_));
  if (found == blocks_.end()) std::abort();
  size_t where = found->first, size = found->second;
  blocks_.erase(found);
  used_ -= size;
  const double now = seconds_();
  Touch(where, size, now);
  const auto behind = free_.lower_bound(where);
  if (behind != free_.begin()) {
    const auto before = std::prev(behind);
    if (before->first + before->second == where) {
      where = before->first;
      size += before->second;
      TakeOut(before);
    }
  }
  if (behind != free_.end() && where + size == behind->first) {
    size += behind->second;
    TakeOut(behind);
  }
  Free(where, size);
  GiveBackOld(now);
}

size_t PagePool::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

size_t PagePool::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return kept_ * kChunkBytes;
}

// The smallest free range that is large enough; else the end, with what is free just before it.
size_t PagePool::Fitting(size_t size) const {
  if (const auto fits = by_size_.lower_bound({size, 0}); fits != by_size_.end()) return fits->second;
  if (free_.empty()) return end_;
  const auto& [where, last] = *std::prev(free_.end());
  return where + last == end_ ? where : end_;
}

bool PagePool::Grow(size_t end) {
  if (end <= writable_) return true;
  if (end > reserved_) return false;
  const size_t writable = std::min(RoundUp(end, kGrowthBytes), reserved_);
  found_.reserve(writable / kChunkBytes);
  chunks_.resize(writable / kChunkBytes);
  if (mprotect(base_ + writable_, writable - writable_, PROT_READ | PROT_WRITE) != 0) return false;
  // A step goes through more memory than the processor has addresses of small pages at hand. A kernel without says no.
  madvise(base_ + writable_, writable - writable_, MADV_HUGEPAGE);
  writable_ = writable;
  return true;
}

// Where there is no memory to say that it is free, it stays out of use.
void PagePool::Free(size_t begin, size_t size) noexcept {
  try {
    by_size_.emplace(size, begin);
    free_.emplace(begin, size);
  } catch (const std::bad_alloc&) {
    by_size_.erase({size, begin});
  }
}

void PagePool::TakeOut(std::map<size_t, size_t>::iterator range) {
  by_size_.erase({range->second, range->first});
  free_.erase(range);
}

void PagePool::Touch(size_t begin, size_t size, double now) {
  for (size_t i = begin / kChunkBytes; i * kChunkBytes < begin + size; ++i) {
    kept_ += chunks_[i].kept ? 0 : 1;
    chunks_[i] = {now, true};
  }
}

void PagePool::GiveBackOld(double now) {
  if (now - looked_ < kSecondsBetweenLooks) return;
  looked_ = now;
  FindFreeChunks();
  std::erase_if(found_, [&](size_t i) { return now - chunks_[i].used <= kKeptSeconds; });
  // Not all of it: whoever else wants a block waits.
  found_.resize(std::min(found_.size(), std::max(kLeastAtOnce, found_.size() / kEighth)));
  GiveBackFound();
  kept_for_gaps_ = std::min(kept_for_gaps_, kept_);
}

// Once it is too much, down to what blocks have been: not at each block a little. What cannot go is not looked for
// again until there is more.
void PagePool::GiveBackGaps() {
  const size_t blocks = RoundUp(most_used_, kChunkBytes) / kChunkBytes;
  const size_t bound = std::min(blocks + blocks / kEighth + kPartial, std::max(blocks, most_bytes_ / kChunkBytes));
  if (kept_ <= std::max(bound, kept_for_gaps_ == 0 ? 0 : kept_for_gaps_ + kPartial)) return;
  FindFreeChunks();
  std::ranges::sort(found_, {}, [&](size_t i) { return std::pair(chunks_[i].used, i); });
  found_.resize(std::min(found_.size(), kept_ - blocks));
  std::ranges::sort(found_);
  GiveBackFound();
  kept_for_gaps_ = kept_;
}

void PagePool::FindFreeChunks() {
  found_.clear();
  for (const auto& [where, size] : free_) {
    for (size_t i = RoundUp(where, kChunkBytes) / kChunkBytes; (i + 1) * kChunkBytes <= where + size; ++i) {
      if (chunks_[i].kept) found_.push_back(i);
    }
  }
}

void PagePool::GiveBackFound() {
  for (size_t i = 0; i < found_.size();) {
    size_t n = 1;
    while (i + n < found_.size() && found_[i + n] == found_[i] + n) ++n;
    if (madvise(base_ + found_[i] * kChunkBytes, n * kChunkBytes, MADV_DONTNEED) != 0)
      return;  // locked in memory, then
    for (const size_t end = i + n; i < end; ++i) chunks_[found_[i]].kept = false;
    kept_ -= n;
  }
}

}  // namespace trainyard
