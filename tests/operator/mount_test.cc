// Volumes at their mount paths: the plan, and what a real process sees of it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "operator/local/node/container_view.h"
#include "operator/local/node/process.h"

namespace trainyard::local {
namespace {

namespace fs = std::filesystem;
using Kind = MountStep::Kind;

class MountTest : public testing::Test {
 protected:
  MountTest() : folder_(fs::canonical(testing::TempDir()) / ("mounts-" + std::to_string(getpid()))) {
    for (const char* name : {"staging", "volume/inside", "host/kept", "other"}) fs::create_directories(folder_ / name);
    std::ofstream(folder_ / "host/file") << "of the machine";
    std::ofstream(folder_ / "volume/file") << "of the volume";
    fs::create_symlink("file", folder_ / "host/link");
  }
  ~MountTest() override { fs::remove_all(folder_); }

  std::string Path(const char* name) const { return (folder_ / name).string(); }
  Result<std::vector<MountStep>> Plan(std::vector<Mount> mounts) {
    const Result<std::vector<Mount>> resolved = ResolveMounts(std::move(mounts));
    return resolved.ok() ? PlanMounts(*resolved, Path("staging")) : resolved.status();
  }

  // What `script` prints when it sees `mounts`, and its exit code.
  std::string Run(std::vector<Mount> mounts, const std::string& script) {
    ProcessSpec spec{.command = {"sh", "-c", script}, .environment = {"PATH=/usr/bin:/bin"}, .output = Path("log")};
    Result<std::vector<MountStep>> steps = Plan(std::move(mounts));
    if (!steps.ok()) return steps.status().message();
    spec.mounts.emplace(*steps);
    fs::remove(spec.output);
    Result<Process> process = Process::Start(spec);
    if (!process.ok()) return process.status().message();
    std::optional<ProcessEnd> end;
    while (!(end = process->Poll())) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::ifstream file(spec.output);
    return std::string(std::istreambuf_iterator<char>(file), {}) + "exit " + std::to_string(end->exit_code);
  }
  const fs::path folder_;
};

bool Has(const std::vector<MountStep>& steps, Kind kind, const std::string& target) {
  return std::any_of(steps.begin(), steps.end(),
                     [&](const MountStep& s) { return s.kind == kind && s.target == target; });
}

TEST_F(MountTest, APathThatExistsNeedsNothingReplaced) {
  const auto steps = Plan({{Path("host"), Path("volume")}});
  ASSERT_TRUE(steps.ok());
  const std::vector<MountStep> expected = {{Kind::kStaging, Path("staging"), ""},
                                           {Kind::kFolder, "volume-0", ""},
                                           {Kind::kBind, "volume-0", Path("volume")},
                                           {Kind::kBind, Path("host"), "volume-0"},
                                           {Kind::kDetach, ".", ""}};
  EXPECT_EQ(*steps, expected);
}

TEST_F(MountTest, TheDeepestFolderAboveAMissingPathIsReplaced) {
  const auto steps = Plan({{Path("host/new/deep"), Path("volume"), true}});
  ASSERT_TRUE(steps.ok());
  for (const char* copied : {"folder-0/kept", "folder-0/file"}) EXPECT_TRUE(Has(*steps, Kind::kBind, copied)) << copied;
  EXPECT_TRUE(Has(*steps, Kind::kSymlink, "folder-0/link"));
  EXPECT_TRUE(Has(*steps, Kind::kMove, Path("host")));
  EXPECT_TRUE(Has(*steps, Kind::kFolder, Path("host/new")));
  EXPECT_TRUE(Has(*steps, Kind::kReadOnly, Path("host/new/deep")));
  EXPECT_TRUE(Has(*steps, Kind::kReadOnly, Path("host")));
  EXPECT_FALSE(Has(*steps, Kind::kEnter, "root")) << "the root is left alone";
}

TEST_F(MountTest, APathInsideAVolumeIsMadeInTheVolume) {
  const auto steps = Plan({{Path("host"), Path("volume")}, {Path("host/a/b"), Path("other")}});
  ASSERT_TRUE(steps.ok());
  EXPECT_FALSE(std::any_of(steps->begin(), steps->end(), [](const MountStep& s) { return s.kind == Kind::kMove; }));
  EXPECT_TRUE(Has(*steps, Kind::kFolder, Path("host/a")));
}

TEST_F(MountTest, APathThatCannotBeIsRefused) {
  EXPECT_TRUE(Plan({{"/", Path("volume")}}).status().Is(Code::kInvalid));
  const Status below = Plan({{Path("host/file/x"), Path("volume")}}).status();
  EXPECT_TRUE(below.Is(Code::kInvalid));
  EXPECT_NE(below.message().find("host/file is not a folder"), std::string::npos) << below.message();
}

TEST_F(MountTest, TheInnermostMountIsFound) {
  const std::vector<Mount> mounts = {{"/data", "/host"}, {"/data/room", "/other"}};
  EXPECT_EQ(FindMount(mounts, "/data/x"), &mounts[0]);
  EXPECT_EQ(FindMount(mounts, "/data/room"), &mounts[1]);
  EXPECT_EQ(FindMount(mounts, "/data/room/x"), &mounts[1]);
  EXPECT_EQ(FindMount(mounts, "/database"), nullptr);
}

TEST_F(MountTest, LinksAreFollowedButNotBelowAnotherVolume) {
  fs::create_directory_symlink(folder_ / "other", folder_ / "host/away");
  EXPECT_EQ(*ResolveMounts({{Path("host/away/x"), "/v"}}), (std::vector<Mount>{{Path("other/x"), "/v"}}));
  EXPECT_EQ(*ResolveMounts({{Path("host/away"), "/inner"}, {Path("host"), "/outer"}}),
            (std::vector<Mount>{{Path("host"), "/outer"}, {Path("host/away"), "/inner"}}));
}

TEST_F(MountTest, WhatTheAgentLendsIsLentElsewhereWhenAVolumeHidesIt) {
  const LentFolders lent{.messages = Path("host/kept"), .programs = Path("other"), .staging = Path("staging")};
  const auto open = MakeView({{"/trainyard-test", Path("volume")}}, "", lent, true);
  EXPECT_EQ(open->messages, lent.messages);
  const auto hidden = MakeView({{Path("host"), Path("volume")}}, "/somewhere", lent, true);
  EXPECT_EQ(hidden->messages, "/.trainyard/messages");
  EXPECT_EQ(hidden->programs, lent.programs);
  EXPECT_EQ(hidden->directory, "/somewhere");
  const auto named = MakeView({{"/a", "/v"}, {"/a/b", "/w"}}, "/a/b/c", lent, false);
  EXPECT_FALSE(named->mounts);
  EXPECT_EQ(named->volumes, R"({"/a":"/v","/a/b":"/w"})");
  EXPECT_EQ(named->directory, "/w/c");
}

// Asked of someone else than the code under test.
bool KernelAllowsMounts() {
  const std::string user = geteuid() == 0 ? "" : "--user ";
  return std::system(("unshare " + user + "--mount true 2>/dev/null").c_str()) == 0;
}

class NamespaceTest : public MountTest {
 protected:
  void SetUp() override {
    if (!KernelAllowsMounts()) GTEST_SKIP() << "the kernel or a sandbox refuses mount namespaces here";
    ASSERT_TRUE(TryMounts(folder_).ok()) << TryMounts(folder_).message();
  }
};

TEST_F(NamespaceTest, AVolumeIsAtItsPathAndNothingIsLeftBehind) {
  EXPECT_EQ(Run({{"/trainyard-test/data", Path("volume")}},
                "cat /trainyard-test/data/file; echo new > /trainyard-test/data/new; ls -d /trainyard-test/*"),
            "of the volume/trainyard-test/data\nexit 0");
  EXPECT_TRUE(fs::exists(folder_ / "volume/new"));
  EXPECT_FALSE(fs::exists("/trainyard-test"));
  EXPECT_TRUE(fs::is_empty(folder_ / "staging"));
}

TEST_F(NamespaceTest, WhatWasBesideAVolumeIsStillThere) {
  const std::string host = Path("host");
  EXPECT_EQ(Run({{host + "/new/deep", Path("volume")}}, "cd " + host + " && ls && cat link && cat new/deep/file"),
            "file\nkept\nlink\nnew\nof the machineof the volumeexit 0");
  EXPECT_FALSE(fs::exists(folder_ / "host/new"));
}

TEST_F(NamespaceTest, ReadOnlyIsReadOnly) {
  const std::string host = Path("host");
  EXPECT_EQ(Run({{host + "/new", Path("volume"), true}},
                "cd " + host +
                    "; (echo x > new/x) 2>/dev/null || echo volume; (echo x > x) 2>/dev/null || echo folder; "
                    "echo x > kept/x"),
            "volume\nfolder\nexit 0");
  EXPECT_FALSE(fs::exists(folder_ / "volume/x"));
  EXPECT_TRUE(fs::exists(folder_ / "host/kept/x")) << "other folders are as they were";
}

TEST_F(NamespaceTest, AFolderForEveryoneStaysOpenAndIsTheProcessOwn) {
  const std::string host = Path("host");
  const std::string script = "(echo x > " + host + "/x) 2>/dev/null && cat " + host + "/x";
  fs::permissions(host, fs::perms::all);  // a careless project folder is none
  EXPECT_EQ(Run({{host + "/new", Path("volume")}}, script), "exit 2");
  fs::permissions(host, fs::perms::all | fs::perms::sticky_bit);
  EXPECT_EQ(Run({{host + "/new", Path("volume")}}, script), "x\nexit 0");
  EXPECT_FALSE(fs::exists(folder_ / "host/x"));
}

TEST_F(NamespaceTest, VolumesNestAndMayHideTheirOwnSources) {
  // The first hides everything of this test, the sources of all and the staging area too.
  const std::string all = folder_.string();
  EXPECT_EQ(Run({{all, Path("volume")}, {all + "/a/b", Path("other")}, {"/trainyard-test", Path("host")}},
                "cd " + all + " && ls && ls a && ls /trainyard-test"),
            "a\nfile\ninside\nb\nfile\nkept\nlink\nexit 0");
}

TEST_F(NamespaceTest, AFileCanBeAVolume) {
  const std::string host = Path("host");
  EXPECT_EQ(Run({{host + "/some/name", Path("volume/file")}}, "cat " + host + "/some/name"), "of the volumeexit 0");
}

TEST_F(NamespaceTest, AFileOverAFileOfAVolumeTouchesNeither) {
  std::ofstream(folder_ / "other/file") << "another";
  EXPECT_EQ(Run({{"/trainyard-test", Path("volume"), true}, {"/trainyard-test/file", Path("other/file")}},
                "cat /trainyard-test/file"),
            "anotherexit 0");
  ASSERT_EQ(mkfifo(Path("volume/pipe").c_str(), 0600), 0);  // to open it would wait for ever
  EXPECT_EQ(Run({{"/trainyard-test", Path("volume")}, {"/trainyard-test/pipe", Path("other/file")}},
                "cat /trainyard-test/pipe"),
            "anotherexit 0");
}

TEST_F(NamespaceTest, ALinkToNowhereIsNoObstacle) {
  const std::string host = Path("host");
  fs::create_symlink(folder_ / "unplugged/disk", host + "/data");
  EXPECT_EQ(Run({{host + "/data", Path("volume")}}, "cat " + host + "/data/file"), "of the volumeexit 0");
  EXPECT_EQ(Run({{host + "/data/deep", Path("volume")}}, "cat " + host + "/data/deep/file"), "of the volumeexit 0");
}

TEST_F(NamespaceTest, AVolumeMayHideTheFolderThatThisProgramWasStartedIn) {
  const fs::path before = fs::current_path();
  fs::create_directories(folder_ / "host/work");
  fs::current_path(folder_ / "host/work");
  EXPECT_EQ(Run({{Path("host"), Path("volume")}}, "pwd"), "/\nexit 0");
  fs::current_path(before);
}

TEST_F(NamespaceTest, TheChildHasNothingOfTheParentsFiles) {
  const int held = open(Path("host/file").c_str(), O_RDONLY);
  EXPECT_EQ(Run({}, "ls /proc/self/fd | wc -l"), "4\nexit 0") << "three, and the one that ls opens";
  close(held);
}

TEST_F(NamespaceTest, TheCommandIsLookedUpAmongTheVolumes) {
  fs::create_symlink("/bin/true", folder_ / "volume/tool");  // the folder may be mounted noexec
  ProcessSpec spec{.command = {"/trainyard-test/tool"}, .directory = "/trainyard-test", .output = Path("log")};
  spec.mounts.emplace(*Plan({{"/trainyard-test", Path("volume")}}));
  Result<Process> process = Process::Start(spec);
  ASSERT_TRUE(process.ok()) << process.status().message();
  while (!process->Poll()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(process->Poll()->exit_code, 0);

  spec.command = {"/trainyard-test/none"};
  EXPECT_TRUE(Process::Start(spec).status().Is(Code::kNotFound));
  spec.directory = "/trainyard-test/none";
  EXPECT_EQ(Process::Start(spec).status().message(),
            "working directory /trainyard-test/none: No such file or directory");
}

TEST_F(NamespaceTest, AMountThatFailsIsNamed) {
  ProcessSpec spec{.command = {"true"}, .output = Path("log")};
  auto steps = *Plan({{"/trainyard-test", Path("volume")}});
  fs::remove_all(folder_ / "volume");
  spec.mounts.emplace(std::move(steps));
  EXPECT_EQ(Process::Start(spec).status().message(),
            "mount " + Path("volume") + " at /trainyard-test: No such file or directory");
}

}  // namespace
}  // namespace trainyard::local
