#include "common/cpus.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace trainyard {
namespace {

namespace fs = std::filesystem;

// A file system with /proc/self and cgroups, as a process sees it.
class CpusTest : public testing::Test {
 protected:
  CpusTest() : root_(fs::path(testing::TempDir()) / ("cpus-" + std::to_string(getpid()))) {}
  ~CpusTest() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  void MountV2(const std::string& group, const std::string& top = "/") {
    Write("proc/self/cgroup", "0::" + group);
    Write("proc/self/mountinfo", "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 20 0:26 " + top +
                                     " /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate");
  }
  void MountV1(const std::string& group, const std::string& top) {
    Write("proc/self/cgroup", "9:name=systemd:" + group + "\n4:cpu,cpuacct:" + group + "\n3:cpuset:" + group);
    Write("proc/self/mountinfo", "31 30 0:29 " + top +
                                     " /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n" + "32 30 0:30 " +
                                     top + " /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset");
  }

  const fs::path root_;
};

TEST_F(CpusTest, WithoutCgroupsTheAffinityCounts) {
  EXPECT_EQ(CountCpus(root_, 5).count, 5);
  MountV2("/a");
  EXPECT_EQ(CountCpus(root_, 5).count, 5) << "a group without limits";
}

TEST_F(CpusTest, AQuotaOfOneAndAHalf) {
  MountV2("/pod/trainer");
  Write("sys/fs/cgroup/pod/trainer/cpu.max", "150000 100000");
  const Cpus cpus = CountCpus(root_, 64);
  EXPECT_EQ(cpus.count, 2);
  EXPECT_EQ(cpus.why, "1.5 CPUs of the cgroup's quota");
}

TEST_F(CpusTest, QuotasAreRoundedToTheNearestAndNeverToNothing) {
  MountV2("/pod");
  const std::pair<const char*, int> cases[] = {{"10000 100000", 1},    {"120000 100000", 1}, {"100000 100000", 1},
                                               {"200000 100000", 2},   {"75000 50000", 2},   {"760000 100000", 8},
                                               {"9900000 100000", 64}, {"max 100000", 64},   {"", 64}};
  for (const auto& [quota, count] : cases) {
    Write("sys/fs/cgroup/pod/cpu.max", quota);
    EXPECT_EQ(CountCpus(root_, 64).count, count) << quota;
  }
}

TEST_F(CpusTest, AParentsQuotaHoldsAsWell) {
  MountV2("/pod/trainer");
  Write("sys/fs/cgroup/pod/trainer/cpu.max", "max 100000");
  Write("sys/fs/cgroup/pod/cpu.max", "300000 100000");
  EXPECT_EQ(CountCpus(root_, 64).count, 3);
}

TEST_F(CpusTest, ACpuset) {
  MountV2("/pod");
  Write("sys/fs/cgroup/pod/cpuset.cpus.effective", "0-2,8,10-11");
  const Cpus cpus = CountCpus(root_, 64);
  EXPECT_EQ(cpus.count, 6);
  EXPECT_EQ(cpus.why, "6 CPUs of the cgroup's cpuset");
  EXPECT_EQ(CountCpus(root_, 4).count, 4) << "the affinity mask is smaller";
}

TEST_F(CpusTest, VersionOne) {
  MountV1("/kubepods/pod1/c", "/");
  Write("sys/fs/cgroup/cpu,cpuacct/kubepods/pod1/c/cpu.cfs_quota_us", "-1");
  Write("sys/fs/cgroup/cpu,cpuacct/kubepods/pod1/c/cpu.cfs_period_us", "100000");
  Write("sys/fs/cgroup/cpu,cpuacct/kubepods/pod1/cpu.cfs_quota_us", "250000");
  Write("sys/fs/cgroup/cpu,cpuacct/kubepods/pod1/cpu.cfs_period_us", "100000");
  EXPECT_EQ(CountCpus(root_, 64).count, 3);
  Write("sys/fs/cgroup/cpuset/kubepods/pod1/c/cpuset.cpus", "4-5");
  EXPECT_EQ(CountCpus(root_, 64).count, 2);
}

TEST_F(CpusTest, AContainerThatSeesOnlyItsOwnPart) {
  // Without a cgroup namespace the names are the machine's, the mount is the container's.
  MountV1("/kubepods/pod1/c", "/kubepods/pod1/c");
  Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000");
  Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000");
  EXPECT_EQ(CountCpus(root_, 64).count, 2);
  // A process that was moved out of the namespace's part.
  MountV2("/../other", "/");
  Write("sys/fs/cgroup/cpu.max", "100000 100000");
  EXPECT_EQ(CountCpus(root_, 64).count, 1);
}

TEST_F(CpusTest, NonsenseIsNoLimit) {
  MountV2("/pod");
  Write("sys/fs/cgroup/pod/cpu.max", "soon later");
  Write("sys/fs/cgroup/pod/cpuset.cpus.effective", "x-y");
  EXPECT_EQ(CountCpus(root_, 7).count, 7);
}

TEST(AvailableCpus, OfThisProcess) {
  EXPECT_GE(AvailableCpus().count, 1);
  EXPECT_LE(AvailableCpus().count, sysconf(_SC_NPROCESSORS_ONLN));
  EXPECT_FALSE(AvailableCpus().why.empty());
}

}  // namespace
}  // namespace trainyard
