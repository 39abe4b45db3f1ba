// Memory in whole pages, for what is as large as a training step's tensors.
#ifndef TRAINYARD_TRAINER_BASE_PAGE_POOL_H_
#define TRAINYARD_TRAINER_BASE_PAGE_POOL_H_

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace trainyard {

// One range of addresses, of which blocks are cut where they fit best, and joined again with their free neighbours:
// what a step has freed in pieces of some sizes is there for pieces of others. A heap keeps blocks of more than 32 MiB
// apart, given back to the kernel each time and cleared by it the next time, and makes an aligned block of no free one
// that is just as large. The range is of huge pages where the kernel gives them to who asks (madvise(2)).
//
// What is free stays in memory for kKeptSeconds, since a step takes and frees the same as the one before. Then the
// kernel has it back, in chunks of kChunkBytes: the pool looks once a second, while it is asked for something, and
// gives back an eighth of what it finds, or kLeastAtOnce. Where free ranges are too small for a block, chunks of which
// no block has anything go at once, those that nobody has had for longest first: all that is in memory is an eighth
// more than the most that blocks have been, and no more than they may be, but not the sum of their gaps. To that comes
// what is left of chunks that blocks have in part: up to two of them for each run of blocks.
//
// Thread-safe. Blocks hold anything.
class PagePool {
 public:
  static constexpr size_t kBorderBytes = 4096;  // blocks begin and end at multiples of it
  static constexpr size_t kChunkBytes = size_t{2} << 20;
  static constexpr size_t kLeastAtOnce = 128;  // chunks
  static constexpr double kKeptSeconds = 10;

  // For blocks of `most_bytes` in all, none of it in memory yet; nothing where addresses are limited (`ulimit -v`),
  // which others need as well, or refused. `seconds`: a clock that does not go back.
  static std::unique_ptr<PagePool> Reserve(size_t most_bytes, double (*seconds)());
  // REQUIRES: no block is in use
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // null where that is more than `most_bytes` with the other blocks, or the kernel refuses it. Throws std::bad_alloc
  // where there is no memory for the pool's own lists. REQUIRES: bytes > 0
  void* Allocate(size_t bytes);
  // Aborts, as a heap does, for what Allocate() did not return or was released before. REQUIRES: Owns(block)
  void Release(void* block) noexcept;
  bool Owns(const void* p) const { return p >= base_ && p < base_ + reserved_; }

  size_t used_bytes() const;  // bytes in blocks
  size_t kept_bytes() const;  // bytes of chunks that may be in memory, those of blocks included

 private:
  struct Chunk {
    double used = 0;  // when a block that has some of it came or went
    bool kept = false;
  };

  PagePool(std::byte* base, size_t reserved, size_t most_bytes, double (*seconds)())
      : base_(base), reserved_(reserved), most_bytes_(most_bytes), seconds_(seconds) {}
  size_t Fitting(size_t size) const;
  bool Grow(size_t end);
  void Free(size_t begin, size_t size) noexcept;
  void TakeOut(std::map<size_t, size_t>::iterator range);
  void Touch(size_t begin, size_t size, double now);
  void GiveBackOld(double now);
  void GiveBackGaps();
  void FindFreeChunks();
  void GiveBackFound();

  std::byte* const base_;
  const size_t reserved_, most_bytes_;
  double (*const seconds_)();

  mutable std::mutex mutex_;
  size_t end_ = 0;                               // of what was ever cut into blocks
  size_t writable_ = 0;                          // from there on nothing may be touched
  std::map<size_t, size_t> free_;                // where -> size; no two touch
  std::set<std::pair<size_t, size_t>> by_size_;  // the same as (size, where)
  std::map<size_t, size_t> blocks_;              // where -> size
  size_t used_ = 0, most_used_ = 0;
  std::vector<Chunk> chunks_;  // of what is writable
  size_t kept_ = 0;            // how many of them are
  size_t kept_for_gaps_ = 0;   // how many were when gaps had been given back
  std::vector<size_t> found_;  // as large as chunks_, so that releasing a block takes no memory
  double looked_ = 0;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_BASE_PAGE_POOL_H_
