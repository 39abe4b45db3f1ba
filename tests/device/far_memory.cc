#include "tests/device/far_memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>

namespace trainyard {
namespace {

constexpr size_t kBytes = size_t{4} << 30;  // of addresses; pages come when they are used
constexpr size_t kAlign = 64;

// One range, so that one call opens and closes all of it; first fit.
class Arena {
 public:
  Arena() {
    void* memory = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    base_ = static_cast<char*>(memory);
    free_[0] = kBytes;
  }
  void* Take(size_t bytes) {
    const size_t size = (bytes + kAlign - 1) / kAlign * kAlign + kAlign;  // never none, and never side by side
    const std::lock_guard lock(mutex_);
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second < size) continue;
      const size_t at = it->first, left = it->second - size;
      free_.erase(it);
      if (left > 0) free_[at + size] = left;
      taken_[at] = size;
      return base_ + at;
    }
    throw std::bad_alloc();
  }
  void Return(void* memory) {
    const std::lock_guard lock(mutex_);
    const auto at = static_cast<size_t>(static_cast<char*>(memory) - base_);
    const auto it = taken_.find(at);
    size_t begin = at, size = it->second;
    taken_.erase(it);
    auto next = free_.lower_bound(begin);
    if (next != free_.end() && next->first == begin + size) {
      size += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      auto before = std::prev(next);
      if (before->first + before->second == begin) {
        begin = before->first;
        size += before->second;
        free_.erase(before);
      }
    }
    free_[begin] = size;
  }
  void Open() {
    const std::lock_guard lock(mutex_);
    if (open_++ == 0) Protect(PROT_READ | PROT_WRITE);
  }
  void Close() {
    const std::lock_guard lock(mutex_);
    if (--open_ == 0) Protect(PROT_NONE);
  }

 private:
  void Protect(int rights) {
    if (mprotect(base_, kBytes, rights) == 0) return;
    std::perror("mprotect of far memory");
    std::abort();
  }
  std::mutex mutex_;
  char* base_;
  int open_ = 0;
  std::map<size_t, size_t> free_, taken_;  // offset -> size
};

Arena& TheArena() {
  static Arena& arena = *new Arena;  // outlives every tensor
  return arena;
}

}  // namespace

void* TakeFarMemory(size_t bytes) { return TheArena().Take(bytes); }
void ReturnFarMemory(void* memory) { TheArena().Return(memory); }
FarMemoryOpen::FarMemoryOpen() { TheArena().Open(); }
FarMemoryOpen::~FarMemoryOpen() { TheArena().Close(); }

}  // namespace trainyard
