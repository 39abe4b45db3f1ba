// Blocks of whole pages: apart from each other, joined again, and not in memory for long once they are free.
#include "trainer/base/page_pool.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/process_limits.h"

namespace trainyard {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

std::atomic<double> now = 0;
double Now() { return now; }

std::unique_ptr<PagePool> PoolOf(size_t most) {
  now = 0;
  return PagePool::Reserve(most, Now);
}

std::byte* Written(PagePool& pool, size_t bytes) {
  void* block = pool.Allocate(bytes);
  if (block != nullptr) std::memset(block, 0x5A, bytes);
  return static_cast<std::byte*>(block);
}

// Bytes in memory of [block, block + size), which begins and ends at a page's border.
size_t InMemory(void* block, size_t size) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages(size / page);
  EXPECT_EQ(mincore(block, size, pages.data()), 0);
  return static_cast<size_t>(std::ranges::count_if(pages, [](unsigned char in) { return in & 1; })) * page;
}

// Calls use(place) for a word in each page of a block, and for its last. Blocks are of whole words.
void ForEachPage(std::byte* block, size_t size, const auto& use) {
  for (size_t at = 0; at < size; at += PagePool::kBorderBytes) use(block + at);
  use(block + size - sizeof(uint64_t));
}
void Stamp(std::byte* block, size_t size, uint64_t number) {
  ForEachPage(block, size, [&](std::byte* place) { std::memcpy(place, &number, sizeof number); });
}
bool HasStamp(std::byte* block, size_t size, uint64_t number) {
  bool all = true;
  ForEachPage(block, size, [&](const std::byte* place) { all &= std::memcmp(place, &number, sizeof number) == 0; });
  return all;
}

struct Block {
  std::byte* at;
  size_t size;
  uint64_t number;
};

// Takes and releases blocks of up to 8 MiB while time goes by, and looks whether each still has what was written into
// it.
void UseAtRandom(PagePool& pool, uint64_t seed, int turns, size_t most_blocks) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::vector<Block> blocks;
  const auto release = [&](size_t i) {
    EXPECT_TRUE(HasStamp(blocks[i].at, blocks[i].size, blocks[i].number));
    pool.Release(blocks[i].at);
    blocks[i] = blocks.back();
    blocks.pop_back();
  };
  for (int turn = 0; turn < turns; ++turn) {
    now += 0.3;
    if (blocks.size() < most_blocks && random() % 5 < 3) {
      const size_t size = sizeof(uint64_t) * (1 + random() % (size_t{1} << (1 + random() % 20)));
      auto* at = static_cast<std::byte*>(pool.Allocate(size));
      ASSERT_NE(at, nullptr);
      ASSERT_TRUE(pool.Owns(at) && pool.Owns(at + size - 1));
      ASSERT_EQ(reinterpret_cast<uintptr_t>(at) % PagePool::kBorderBytes, 0u);
      blocks.push_back({at, size, random()});
      Stamp(at, size, blocks.back().number);
    } else if (!blocks.empty()) {
      release(random() % blocks.size());
    }
  }
  while (!blocks.empty()) release(blocks.size() - 1);
}

TEST(PagePool, BlocksAreApart) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const auto pool = PoolOf(1024 * kMiB);
    void* const first = pool->Allocate(1);
    pool->Release(first);
    UseAtRandom(*pool, seed, 2000, 60);
    EXPECT_EQ(pool->used_bytes(), 0u);
    EXPECT_EQ(pool->Allocate(1024 * kMiB), first) << "all of it is one range again";
  }
}

TEST(PagePool, ThreadsShareIt) {
  const auto pool = PoolOf(1024 * kMiB);
  std::vector<std::thread> threads;
  for (uint64_t seed = 1; seed <= 4; ++seed)
    threads.emplace_back([&pool, seed] { UseAtRandom(*pool, seed, 1000, 20); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool->used_bytes(), 0u);
}

TEST(PagePool, WhatWasFreedInPiecesIsThereForALargeOne) {
  const auto pool = PoolOf(1024 * kMiB);
  std::array<std::byte*, 4> pieces{};
  for (std::byte*& piece : pieces) piece = Written(*pool, 40 * kMiB);
  pool->Release(pieces[1]);
  pool->Release(pieces[0]);
  EXPECT_EQ(pool->Allocate(80 * kMiB), pieces[0]);
  pool->Release(pieces[3]);
  EXPECT_EQ(pool->Allocate(120 * kMiB), pieces[3]) << "what is free at the end is gone on from";
}

TEST(PagePool, AFreeBlockThatFitsBestIsTaken) {
  const auto pool = PoolOf(1024 * kMiB);
  std::byte *large = Written(*pool, 9 * kMiB), *between = Written(*pool, kMiB), *small = Written(*pool, 4 * kMiB);
  Written(*pool, kMiB);
  pool->Release(large);
  pool->Release(small);
  EXPECT_EQ(pool->Allocate(4 * kMiB), small);
  EXPECT_TRUE(pool->Owns(between));
}

// A step that takes the same again finds it in memory.
TEST(PagePool, WhatIsFreeStaysInMemoryForAStep) {
  const auto pool = PoolOf(1024 * kMiB);
  for (int step = 0; step < 5; ++step) {
    void* block = pool->Allocate(100 * kMiB);
    EXPECT_EQ(InMemory(block, 100 * kMiB), step == 0 ? 0 : 100 * kMiB);
    std::memset(block, 1, 100 * kMiB);
    pool->Release(block);
    now += PagePool::kKeptSeconds / 2;
    pool->Release(pool->Allocate(1));  // the pool looks what has been free for long
  }
}

TEST(PagePool, WhatIsFreeForLongGoes) {
  const auto pool = PoolOf(1024 * kMiB);
  std::byte *copy = Written(*pool, 100 * kMiB), *state = Written(*pool, 10 * kMiB);
  pool->Release(copy);
  EXPECT_EQ(InMemory(copy, 100 * kMiB), 100 * kMiB);
  now = PagePool::kKeptSeconds + 1;
  pool->Release(pool->Allocate(kMiB));
  EXPECT_LE(InMemory(copy, 100 * kMiB), PagePool::kChunkBytes);
  EXPECT_EQ(InMemory(state, 10 * kMiB), 10 * kMiB);
  EXPECT_EQ(state[kMiB], std::byte{0x5A});
}

// Blocks next to it, and in part in the same chunk, keep what they have.
TEST(PagePool, WhatIsFreeForLongGoesWithoutItsNeighbours) {
  const auto pool = PoolOf(1024 * kMiB);
  std::byte *before = Written(*pool, 3 * kMiB), *old = Written(*pool, 20 * kMiB), *behind = Written(*pool, 3 * kMiB);
  pool->Release(old);
  now = PagePool::kKeptSeconds + 1;
  pool->Release(pool->Allocate(kMiB / 2));
  EXPECT_LE(InMemory(old, 20 * kMiB), 2 * PagePool::kChunkBytes);
  for (std::byte* block : {before, behind}) {
    EXPECT_TRUE(std::all_of(block, block + 3 * kMiB, [](std::byte b) { return b == std::byte{0x5A}; }));
  }
}

// Nobody waits for long, and an evaluation's memory is not held for long either.
TEST(PagePool, MuchThatIsFreeForLongGoesByAndBy) {
  const auto pool = PoolOf(4096 * kMiB);
  pool->Release(pool->Allocate(4096 * kMiB));
  for (int look = 1; pool->kept_bytes() > PagePool::kChunkBytes; ++look) {
    ASSERT_LE(look, 20);
    const size_t before = pool->kept_bytes() / PagePool::kChunkBytes;
    now = PagePool::kKeptSeconds + 2 * look;
    pool->Release(pool->Allocate(1));
    // The first chunk is that of the block that was just there.
    EXPECT_EQ(before - pool->kept_bytes() / PagePool::kChunkBytes,
              std::min(before - 1, std::max(PagePool::kLeastAtOnce, (before - 1) / 8)));
  }
}

// As processors' tables of addresses need it (VmFlags in proc(5)), where the kernel has it.
TEST(PagePool, IsOfHugePages) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) GTEST_SKIP() << "a kernel without huge pages";
  const auto pool = PoolOf(1024 * kMiB);
  const auto at = reinterpret_cast<uintptr_t>(pool->Allocate(kMiB));
  EXPECT_EQ(at % PagePool::kChunkBytes, 0u);
  std::ifstream maps("/proc/self/smaps");
  bool here = false;
  std::string flags;
  for (std::string line; flags.empty() && std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) here = begin <= at && at < end;
    if (here && line.starts_with("VmFlags:")) flags = line;
  }
  EXPECT_NE(flags.find(" hg"), std::string::npos) << flags;
}

// Of blocks of 32 chunks all but one go, and one that fits no gap comes.
struct Gapped {
  explicit Gapped(size_t most = 4096 * kMiB) : pool(PoolOf(most)) {
    for (int i = 0; i < 32; ++i) blocks.push_back(Written(*pool, 16 * kMiB));
    for (size_t i = 0; i < blocks.size(); i += 2) pool->Release(blocks[i]);
  }
  static constexpr size_t kMost = 512 * kMiB, kBound = kMost * 9 / 8 + 8 * PagePool::kChunkBytes;
  std::unique_ptr<PagePool> pool;
  std::vector<std::byte*> blocks;
};

TEST(PagePool, GapsAreNotInMemoryBesideWhatDidNotFitThem) {
  Gapped gapped;
  std::byte* large = Written(*gapped.pool, 200 * kMiB);
  size_t held = InMemory(large, 200 * kMiB);
  for (std::byte* block : gapped.blocks) held += InMemory(block, 16 * kMiB);
  EXPECT_LE(held, Gapped::kBound);
  EXPECT_LE(gapped.pool->kept_bytes(), Gapped::kBound);
  for (size_t i = 1; i < gapped.blocks.size(); i += 2) EXPECT_EQ(gapped.blocks[i][16 * kMiB - 1], std::byte{0x5A});
}

// A container's limit is such a bound.
TEST(PagePool, GapsAreNotInMemoryBeyondWhatBlocksMayBe) {
  Gapped gapped(Gapped::kMost + 8 * kMiB);
  ASSERT_NE(gapped.pool->Allocate(40 * kMiB), nullptr);
  EXPECT_LE(gapped.pool->kept_bytes(), Gapped::kMost + 8 * kMiB);
}

// What one step gives back the next one would have to take again.
TEST(PagePool, OnceGapsHaveGoneThereIsRoomForMoreOfThem) {
  Gapped gapped;
  gapped.pool->Allocate(200 * kMiB);
  EXPECT_EQ(gapped.pool->kept_bytes(), Gapped::kMost);
  for (int i = 0; i < 16; ++i) gapped.pool->Release(gapped.pool->Allocate(16 * kMiB));
  EXPECT_GT(gapped.pool->kept_bytes(), Gapped::kMost);
}

TEST(PagePool, WithoutRoomThereIsNoBlockAndNothingElseChanges) {
  const auto pool = PoolOf(8 * kMiB);
  EXPECT_EQ(pool->Allocate(9 * kMiB), nullptr);
  EXPECT_EQ(pool->Allocate(SIZE_MAX), nullptr);
  std::byte* all = Written(*pool, 8 * kMiB);
  ASSERT_NE(all, nullptr);
  EXPECT_EQ(pool->Allocate(1), nullptr);
  EXPECT_EQ(pool->used_bytes(), 8 * kMiB);
  pool->Release(all);
  EXPECT_EQ(pool->Allocate(8 * kMiB), all);
}

TEST(PagePoolDeathTest, WhatTheKernelRefusesIsNoBlockAndNothingElseChanges) {
  const auto refused = [] {
    const auto pool = PoolOf(4096 * kMiB);
    std::byte* block = Written(*pool, 8 * kMiB);
    LimitWritable(256 * kMiB);
    const bool none = pool->Allocate(1024 * kMiB) == nullptr && pool->used_bytes() == 8 * kMiB;
    pool->Release(block);
    std::_Exit(none && pool->Allocate(16 * kMiB) == block ? 0 : 1);
  };
  EXPECT_EXIT(refused(), testing::ExitedWithCode(0), "");
}

TEST(PagePoolDeathTest, ABlockIsReleasedOnce) {
  const auto pool = PoolOf(8 * kMiB);
  void* block = pool->Allocate(kMiB);
  pool->Release(block);
  EXPECT_EXIT(pool->Release(block), testing::KilledBySignal(SIGABRT), "");
}

TEST(PagePoolDeathTest, WhereAddressesAreLimitedThereIsNone) {
  const auto limited = [] {
    LimitAddresses();
    std::_Exit(PagePool::Reserve(kMiB, Now) == nullptr ? 0 : 1);
  };
  EXPECT_EXIT(limited(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace trainyard
