#include "trainer/train/snapshot_room.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace trainyard {
namespace {

// Of 1000 bytes; what a test says is held, and at most has been.
class CountedDevice : public Device {
 public:
  int64_t held = 0, peak = 0;

  void Hold(int64_t bytes) {
    held += bytes;
    peak = std::max(peak, held);
  }
  // A step takes so much, and gives it back.
  void Step(int64_t bytes) {
    Hold(bytes);
    Hold(-bytes);
  }
  DeviceMemory memory() const override { return {1000 - held, 1000}; }
  int64_t TakePeak() override { return std::exchange(peak, held) - held; }
  at::Device device() const override { return at::kCPU; }
  std::string name() const override { return "counted"; }
  FlatMath& math() override { throw std::logic_error("not used"); }
  std::unique_ptr<TileCopies> MakeCopies() override { return nullptr; }
  at::Tensor Upload(const at::Tensor& host) override { return host; }
  void Download(const at::Tensor&, float*) override {}
  void Synchronize() override {}
  std::unique_ptr<Collectives> Connect(std::shared_ptr<Store>, const ConnectOptions&) override { return nullptr; }
};

// What its allocator keeps unused between steps looks free.
TEST(SnapshotRoom, ACopyHasToFitBesideAStep) {
  CountedDevice device;
  device.Hold(300);
  device.Step(450);
  SnapshotRoom room(device);
  EXPECT_FALSE(room.Has(201)) << "300 + 450 + 201, and a 20th stays free";
  EXPECT_TRUE(room.Has(200)) << "the peak is remembered";
}

TEST(SnapshotRoom, TheLastCopyIsNoPartOfAStep) {
  CountedDevice device;
  device.Hold(300);
  device.Step(300);
  SnapshotRoom room(device);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(room.Has(300)) << i;
    device.Hold(300);
    device.Step(300);
    device.Hold(-300);
  }
  device.Step(700);
  EXPECT_FALSE(room.Has(300)) << "what is more than the copy was a step's";
}

}  // namespace
}  // namespace trainyard
