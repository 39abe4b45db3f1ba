#include "trainer/base/text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <system_error>

#include "trainer/base/message.h"

namespace trainyard {
namespace {

TEST(NearestName, FindsWhatWasMeant) {
  const std::vector<std::string> names = {"optim.lr", "optim.eps", "optim.weight_decay"};
  EXPECT_EQ(NearestName("optim.weight_decai", names), "optim.weight_decay");
  EXPECT_EQ(NearestName("optim.l", names), "optim.lr");
  EXPECT_EQ(NearestName("zzzzz", names), "");
}

TEST(MessageOf, AThreadThatCouldNotBeStartedNamesItsLimits) {
  const auto said = [](std::errc code) { return MessageOf(std::system_error(std::make_error_code(code))); };
  EXPECT_EQ(said(std::errc::resource_unavailable_try_again),
            "cannot start a thread: Resource temporarily unavailable; the limits are ulimit -u and a container's "
            "pids.max for how many there may be, ulimit -v and -d for their stacks");
  EXPECT_EQ(said(std::errc::permission_denied), "Permission denied");
}

TEST(HumanUnits, ReadWell) {
  EXPECT_EQ(HumanBytes(1536), "1.5 KiB");
  EXPECT_EQ(HumanSeconds(65), "1m05s");
  EXPECT_EQ(HumanSeconds(3725), "1h02m");
  EXPECT_EQ(HumanSeconds(2.5), "2.5s");
}

TEST(JsonFloat, NineDigitsBringAFloatBack) {
  const float x = 0.1f;
  EXPECT_EQ(std::stof(JsonFloat(x)), x);
  EXPECT_EQ(JsonFloat(NAN), "\"nan\"");
  EXPECT_EQ(JsonFloat(-INFINITY), "\"-inf\"");
}

}  // namespace
}  // namespace trainyard
