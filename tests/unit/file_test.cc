#include "trainer/base/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "trainer/base/error.h"
#include "trainer/base/hash.h"
#include "trainer/base/input_file.h"
#include "trainer/base/remove_folder.h"
#include "trainer/base/temporary_name.h"

namespace trainyard {
namespace {

class FileTest : public testing::Test {
 protected:
  FileTest() : directory_(fs::path(testing::TempDir()) / ("file_test-" + std::to_string(getpid()))) {
    fs::create_directories(directory_);
  }
  ~FileTest() override {
    fs::remove_all(directory_);
    unsetenv("TRAINYARD_VOLUMES");
  }
  fs::path directory_;
};

TEST_F(FileTest, AtomicWriteReplacesAndLeavesNothing) {
  WriteFileAtomic(directory_ / "a", "one");
  WriteFileAtomic(directory_ / "a", "two");
  EXPECT_EQ(ReadFile(directory_ / "a"), "two");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 1);
}

TEST_F(FileTest, TemporaryNamesAreKnownAndNoOthers) {
  EXPECT_TRUE(IsTemporaryName(TemporaryName("config.json")));
  EXPECT_TRUE(IsTemporaryName("a.tmp-17-00c0ffee"));
  for (const char* other :
       {"", "config.json", ".tmp-17-00c0ffee", "notes.tmp-draft.txt", "a.tmp--00c0ffee", "a.tmp-17", "a.tmp-17-00c0ffe",
        "a.tmp-17-00c0ffeee", "a.tmp-17-00C0FFEE", "a.tmp-x7-00c0ffee", "a.tmp-17-00c0ffee-old", "a.tmp-00c0ffee"})
    EXPECT_FALSE(IsTemporaryName(other)) << other;
}

TEST_F(FileTest, AFailedReplacementKeepsTheOldAndLeavesNothing) {
  WriteFileAtomic(directory_ / "a", "one");
  auto half = [](const fs::path& temporary) {
    std::ofstream(temporary) << "tw";
    throw StorageError("the disk is full");
  };
  EXPECT_THROW(Replacement(directory_ / "a", half), StorageError);
  {
    const Replacement never_committed(directory_ / "a", [](const fs::path& path) { std::ofstream(path) << "two"; });
  }
  EXPECT_EQ(ReadFile(directory_ / "a"), "one");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 1);
}

TEST_F(FileTest, AFailedWriteNamesThePath) {
  EXPECT_THROW(
      try { WriteFileAtomic(directory_ / "missing" / "a", "x"); } catch (const StorageError& e) {
        EXPECT_NE(std::string(e.what()).find("missing/a"), std::string::npos);
        throw;
      },
      StorageError);
}

// For as long as this lives no file can be opened: the system has no answer, as when a server is away.
class NoDescriptorLeft {
 public:
  NoDescriptorLeft() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit none{.rlim_cur = 0, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptorLeft() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST_F(FileTest, WhatWasRefusedIsAMistakeAndWhatGotNoAnswerIsTheStorages) {
  const fs::path file = directory_ / "a";
  WriteFileAtomic(file, "one");
  EXPECT_THROW(InputFile(directory_ / "none"), RefusedPathError);
  EXPECT_THROW(InputFile{directory_}, RefusedPathError);
  EXPECT_EQ(SizeOf(file), 3);
  EXPECT_THROW(SizeOf(directory_ / "none"), RefusedPathError);
  EXPECT_THROW(SizeOf(directory_), RefusedPathError);
  EXPECT_THROW(RequireWritableDirectory(file / "below", "run.dir"), ConfigError);
  const NoDescriptorLeft none;
  try {
    const InputFile opened(file);
    ADD_FAILURE() << "it was opened";
  } catch (const RefusedPathError& error) {
    ADD_FAILURE() << error.what();
  } catch (const StorageError&) {
  }
  EXPECT_THROW(RequireWritableDirectory(directory_, "run.dir"), StorageError);
}

// A step that was archived and linked back, or a link in a copy that a stranger made.
TEST_F(FileTest, OfALinkTheLinkIsRemoved) {
  fs::create_directories(directory_ / "archive" / "below");
  WriteFileAtomic(directory_ / "archive" / "precious", "1");
  fs::create_directories(directory_ / "step");
  fs::create_directory_symlink(directory_ / "archive", directory_ / "link");
  fs::create_directory_symlink(directory_ / "archive", directory_ / "step" / "link");
  int ticks = 0;
  for (const char* name : {"link", "step", "step"})
    EXPECT_FALSE(RemoveFolder(directory_ / name, [&] { ++ticks; })) << name;
  EXPECT_EQ(ticks, 1);
  EXPECT_FALSE(fs::exists(fs::symlink_status(directory_ / "link")));
  EXPECT_FALSE(fs::exists(directory_ / "step"));
  EXPECT_EQ(ReadFile(directory_ / "archive" / "precious"), "1");
  EXPECT_TRUE(fs::exists(directory_ / "archive" / "below"));
}

TEST_F(FileTest, LongestVolumeWins) {
  setenv("TRAINYARD_VOLUMES", R"({"/data": "/host/d", "/data/dark-room": "/host/room", "/": "/host/root"})", 1);
  EXPECT_EQ(ResolveVolume("/data/x/y"), "/host/d/x/y");
  EXPECT_EQ(ResolveVolume("/data/dark-room"), "/host/room");
  EXPECT_EQ(ResolveVolume("/data/dark-rooms"), "/host/d/dark-rooms");
  EXPECT_EQ(ResolveVolume("relative"), "relative");
  for (const char* bad : {"[1]", R"({"/data": 5})", R"({"/other": {}, "/data": "/host"})", "{"}) {
    setenv("TRAINYARD_VOLUMES", bad, 1);
    EXPECT_THROW(ResolveVolume("/data"), ConfigError) << bad;
  }
}

TEST_F(FileTest, AHomeDirectoryIsTheShells) {
  for (const char* path : {"~", "~/run", "~user/run"}) {
    EXPECT_THROW(
        try { ResolveVolume(path); } catch (const ConfigError& e) {
          EXPECT_NE(std::string(e.what()).find(std::string("./") + path), std::string::npos) << e.what();
          throw;
        },
        ConfigError);
  }
  EXPECT_EQ(ResolveVolume("./~/run"), "./~/run");
}

// An NFS server that is away, played by a link to itself: no right and no user makes the system look behind it.
TEST_F(FileTest, ALookThatFailsIsNoAnswer) {
  WriteFileAtomic(directory_ / "a", "one");
  fs::create_symlink("loop", directory_ / "loop");
  EXPECT_TRUE(fs::is_regular_file(LookAt(directory_ / "a")));
  EXPECT_TRUE(fs::is_directory(LookAt(directory_)));
  for (const fs::path& nothing :
       {directory_ / "b", directory_ / "b" / "c", directory_ / "a" / "b", directory_ / std::string(1000, 'x')})
    EXPECT_EQ(LookAt(nothing).type(), fs::file_type::not_found) << nothing;
  for (const fs::path& hidden : {directory_ / "loop", directory_ / "loop" / "a"})
    EXPECT_THROW(LookAt(hidden), StorageError) << hidden;
}

// What has no end, or nobody at its other end, would be read for ever.
TEST_F(FileTest, OnlyRegularFilesAreReadAsAWhole) {
  ASSERT_EQ(mkfifo((directory_ / "fifo").c_str(), 0600), 0);
  fs::create_symlink("/dev/zero", directory_ / "zero");
  for (const fs::path& path : {directory_ / "fifo", directory_ / "zero", directory_})
    EXPECT_THROW(ReadFile(path), StorageError) << path;
}

// A sparse file takes no room, until it is read.
TEST_F(FileTest, WhatIsReadAsAWholeIsBounded) {
  WriteFileAtomic(directory_ / "a", "12345");
  EXPECT_EQ(ReadFile(directory_ / "a", 5), "12345");
  EXPECT_THROW(ReadFile(directory_ / "a", 4), StorageError);
  fs::resize_file(directory_ / "a", uint64_t{1} << 40);
  EXPECT_THROW(ReadFile(directory_ / "a"), StorageError);
}

TEST_F(FileTest, HashesOfPiecesAndOfTheWhole) {
  WriteFileAtomic(directory_ / "a", std::string(3'000'000, 'x'));
  const std::string content = ReadFile(directory_ / "a");
  EXPECT_EQ(InputFile(directory_ / "a").Checksum(), Xxh3(std::as_bytes(std::span(content))));
  EXPECT_EQ(HexDigest(Xxh3({})), "2d06800538d394c2");  // the specification's value for no input
}

}  // namespace
}  // namespace trainyard
