#include "trainer/base/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "trainer/base/error.h"

namespace trainyard {
namespace {

constexpr char kName[] = "TRAINYARD_ENVIRONMENT_TEST";

struct EnvironmentTest : testing::Test {
  ~EnvironmentTest() override { unsetenv(kName); }
};

TEST_F(EnvironmentTest, UnsetAndEmptyAreNothing) {
  EXPECT_FALSE(EnvInt(kName, 0, 9));
  setenv(kName, "", 1);
  EXPECT_FALSE(EnvInt(kName, 0, 9));
}

TEST_F(EnvironmentTest, BothEndsOfTheRangeAreAllowed) {
  setenv(kName, "1", 1);
  EXPECT_EQ(EnvPort(kName), 1);
  setenv(kName, "65535", 1);
  EXPECT_EQ(EnvPort(kName), 65535);
}

TEST_F(EnvironmentTest, WhatIsNotWhollyInTheRangeIsRefused) {
  // The last three become small numbers when they are cut to 16, 32 or 64 bits.
  for (const char* text : {"0", "-1", "x", "12x", "1 ", " 1", "+1", "1e3", "0x10", "65536", "99999", "4294967297",
                           "18446744073709551617"}) {
    setenv(kName, text, 1);
    try {
      EnvPort(kName);
      ADD_FAILURE() << text;
    } catch (const ConfigError& error) {
      EXPECT_EQ(std::string(error.what()),
                std::string(kName) + ": " + text + " is not allowed; expected an integer from 1 to 65535");
    }
  }
}

}  // namespace
}  // namespace trainyard
