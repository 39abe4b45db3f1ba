#include "trainer/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/random.h"

namespace trainyard {
namespace {

class SafetensorsTest : public testing::Test {
 protected:
  SafetensorsTest() : directory_(fs::path(testing::TempDir()) / ("safetensors-" + std::to_string(getpid()))) {
    fs::create_directories(directory_);
  }
  ~SafetensorsTest() override { fs::remove_all(directory_); }

  // A file from a header and so many bytes of data.
  fs::path File(const std::string& header, size_t data) {
    const uint64_t length = header.size();
    std::string content(reinterpret_cast<const char*>(&length), 8);
    WriteFileAtomic(directory_ / "f", content + header + std::string(data, 'x'));
    return directory_ / "f";
  }
  fs::path directory_;
};

TEST_F(SafetensorsTest, ComesBack) {
  const std::vector<float> a = {1, 2, 3, 4}, b = {5};
  const std::vector<SafetensorsEntry> entries = {{"a", {2, 2}, a}, {"b", {}, b}, {"none", {1000, 0}, {}}};
  const WrittenFile written = WriteSafetensors(directory_ / "x", entries, {{"format", "pt"}});
  EXPECT_EQ(written.bytes, fs::file_size(directory_ / "x"));
  const SafetensorsFile file(directory_ / "x");
  EXPECT_EQ(file.Floats("a"), a);
  EXPECT_EQ(file.Floats("b"), b);
  EXPECT_EQ(file.tensors().at("none").shape, (std::vector<int64_t>{1000, 0}));
  EXPECT_THROW(file.Floats("c"), DataError);
}

// Whoever reads or writes something long says that it gets on, at least every few megabytes.
TEST_F(SafetensorsTest, TicksWhileItGetsOn) {
  const std::vector<float> large(20 << 20);
  const std::vector<SafetensorsEntry> entries = {{"large", {20 << 20}, large}};
  int ticks = 0;
  const auto taken = [&] { return std::exchange(ticks, 0); };
  const Tick tick = [&] { ++ticks; };
  WriteSafetensors(directory_ / "x", entries, {}, tick);
  EXPECT_GE(taken(), 10);
  const SafetensorsFile file(directory_ / "x");
  EXPECT_EQ(file.Floats("large", tick).size(), large.size());
  EXPECT_GE(taken(), 10);
}

TEST_F(SafetensorsTest, RefusesHostileHeaders) {
  for (
      const char* header : {
          "{\"a\\n\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
          R"({"a":{"dtype":"F32","shape":[18446744073709551615,0],"data_offsets":[0,0]}})",
          "",
          "[]",
          "{",
          R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",                      // beyond the data
          R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})",                      // shape and size disagree
          R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]}})",  // overflows
          R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})",                     // negative
          R"({"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})",                      // unknown type
          R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})",                      // backwards
          R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",                      // data behind the last
          R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",                       // a hole before the first
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
          R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
          R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
          R"({"a":{"dtype":"F32","shape":"x","data_offsets":[0,4]}})",
          R"({"a":{"dtype":"F32"}})",
          R"({"a":{"dtype":"F64","shape":[9],"data_offsets":[0,99]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
          R"({"__metadata__":[[[[]]]],"a":7})",
          R"({"a":7})",
      }) {
    EXPECT_THROW(SafetensorsFile(File(header, 4)), DataError) << header;
  }
  WriteFileAtomic(directory_ / "g", "short");
  EXPECT_THROW(SafetensorsFile(directory_ / "g"), DataError);
  WriteFileAtomic(directory_ / "g", std::string(8, '\xff') + "{}");
  EXPECT_THROW(SafetensorsFile(directory_ / "g"), DataError);
}

TEST_F(SafetensorsTest, ConvertsOtherFloats) {
  const std::string header =
      R"({"h":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},"b":{"dtype":"BF16","shape":[1],"data_offsets":[4,6]}})";
  const fs::path path = File(header, 6);
  std::string content = ReadFile(path);
  const uint16_t words[] = {0x3C00, 0xC100, 0x4049};  // 1, -2.5, 3.140625
  std::memcpy(content.data() + content.size() - 6, words, 6);
  WriteFileAtomic(path, content);
  const SafetensorsFile file(path);
  EXPECT_EQ(file.Floats("h"), (std::vector<float>{1, -2.5}));
  EXPECT_EQ(file.Floats("b"), (std::vector<float>{3.140625}));
  EXPECT_EQ(file.Numbers("b"), file.Floats("b"));
}

TEST_F(SafetensorsTest, CountsAreNumbersAndNoFloats) {
  const std::string header =
      R"({"l":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"i":{"dtype":"I32","shape":[1],"data_offsets":[8,12]}})";
  const fs::path path = File(header, 12);
  std::string content = ReadFile(path);
  const int32_t words[] = {41, 0, -3};
  std::memcpy(content.data() + content.size() - 12, words, 12);
  WriteFileAtomic(path, content);
  const SafetensorsFile file(path);
  EXPECT_EQ(file.Numbers("l"), (std::vector<float>{41}));
  EXPECT_EQ(file.Numbers("i"), (std::vector<float>{-3}));
  EXPECT_THROW(file.Floats("l"), DataError);
}

}  // namespace
}  // namespace trainyard
