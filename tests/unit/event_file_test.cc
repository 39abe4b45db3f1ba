#include "trainer/metrics/event_file.h"

#include <gtest/gtest.h>

#include <cstring>

namespace trainyard {
namespace {

// RFC 3720, appendix B.4.
TEST(Crc32c, KnownAnswers) {
  unsigned char data[32] = {};
  EXPECT_EQ(Crc32c(data, 32), 0x8A9136AAu);
  std::memset(data, 0xFF, 32);
  EXPECT_EQ(Crc32c(data, 32), 0x62A8AB43u);
  for (unsigned char i = 0; i < 32; ++i) data[i] = i;
  EXPECT_EQ(Crc32c(data, 32), 0x46DD794Eu);
  EXPECT_EQ(Crc32c("123456789", 9), 0xE3069283u);
}

}  // namespace
}  // namespace trainyard
