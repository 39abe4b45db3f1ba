#include "trainer/base/memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>
#include <vector>

namespace trainyard {
namespace {

namespace fs = std::filesystem;

class MemoryTest : public testing::Test {
 protected:
  MemoryTest() : root_(fs::path(testing::TempDir()) / ("memory-" + std::to_string(getpid()))) {
    Write("proc/self/mountinfo",
          "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
          "32 30 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  }
  ~MemoryTest() override { fs::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  fs::path root_;
};

TEST(ResidentBytes, CountsWhatIsTouched) {
  const auto before = ResidentBytes();
  const std::vector<char> touched(64 << 20, 1);
  ASSERT_TRUE(before && touched.back() == 1);
  EXPECT_GE(*ResidentBytes(), *before + (60 << 20));
}

TEST_F(MemoryTest, TheSmallestLimitOfAllGroupsCounts) {
  const MemoryLimit machine = MemoryLimitHere(root_);
  EXPECT_GT(machine.bytes, uint64_t{64} << 20);
  EXPECT_EQ(machine.source, "the machine's memory");
  Write("proc/self/cgroup", "0::/kubepods/pod1\n");
  Write("sys/fs/cgroup/kubepods/pod1/memory.max", "max\n");
  EXPECT_EQ(MemoryLimitHere(root_).bytes, machine.bytes);
  Write("sys/fs/cgroup/kubepods/memory.max", "1000000\n");
  EXPECT_EQ(MemoryLimitHere(root_).bytes, 1000000u);
  EXPECT_EQ(MemoryLimitHere(root_).source, (root_ / "sys/fs/cgroup/kubepods/memory.max").string());
  Write("sys/fs/cgroup/kubepods/pod1/memory.max", "4096\n");
  EXPECT_EQ(MemoryLimitHere(root_).bytes, 4096u);
}

// In a container the group is often shown as the root.
TEST_F(MemoryTest, TheRootGroupAndVersionOne) {
  Write("proc/self/cgroup", "12:cpu,cpuacct:/x\n4:memory:/\n");
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "8192\n");
  EXPECT_EQ(MemoryLimitHere(root_).bytes, 8192u);
  // A node whose kubelet and runtime do not agree on who names groups.
  Write("proc/self/cgroup", "4:memory:/pods.slice:cri-containerd:1\n");
  Write("sys/fs/cgroup/memory/pods.slice:cri-containerd:1/memory.limit_in_bytes", "1024\n");
  EXPECT_EQ(MemoryLimitHere(root_).bytes, 1024u);
  Write("proc/self/cgroup", "0::/\n");
  Write("sys/fs/cgroup/memory.max", "2048");
  EXPECT_EQ(MemoryLimitHere(root_).bytes, 2048u);
}

TEST_F(MemoryTest, WhatTheKernelHasKilledIsCountedWhereItIsTold) {
  EXPECT_EQ(OomKillCounter(root_)(), std::nullopt);
  Write("proc/vmstat", "nr_free_pages 1\noom_kill 7\nzone_reclaim 0\n");
  EXPECT_EQ(OomKillCounter(root_)(), 7u);
  Write("proc/self/cgroup", "0::/pod1\n");
  Write("sys/fs/cgroup/pod1/memory.events", "low 0\nhigh 5\nmax 9\noom 4\noom_kill 2\n");
  const auto count = OomKillCounter(root_);
  EXPECT_EQ(count(), 2u) << "and not what others of the machine have lost";
  Write("sys/fs/cgroup/pod1/memory.events", "oom_kill 5\n");
  EXPECT_EQ(count(), 5u);
  fs::remove(root_ / "sys/fs/cgroup/pod1/memory.events");
  EXPECT_EQ(count(), std::nullopt) << "another count is not gone on with";
  Write("proc/self/cgroup", "0::/pod1/of/its/own\n");
  Write("sys/fs/cgroup/pod1/memory.events", "oom_kill 4\n");
  EXPECT_EQ(OomKillCounter(root_)(), 4u) << "the controller is not everywhere below";
  Write("proc/self/cgroup", "4:memory:/pod1\n");
  Write("sys/fs/cgroup/memory/pod1/memory.oom_control", "oom_kill_disable 1\nunder_oom 0\noom_kill 3\n");
  EXPECT_EQ(OomKillCounter(root_)(), 3u);
}

TEST(Memory, WhatIsFreedIsNotFaultedInAgain) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer brings an allocator of its own";
#endif
  KeepFreedMemory();
  constexpr size_t kBytes = 8 << 20;
  auto faults_of_one_use = [] {
    rusage before{}, after{};
    getrusage(RUSAGE_SELF, &before);
    std::vector<char>(kBytes, 1);
    getrusage(RUSAGE_SELF, &after);
    return after.ru_minflt - before.ru_minflt;
  };
  faults_of_one_use();
  // Its pages are 2,048; something else of this process may fault now and then.
  for (int use = 0; use < 5; ++use) EXPECT_LT(faults_of_one_use(), 100) << use;
}

}  // namespace
}  // namespace trainyard
