#include "operator/net/dial.h"

#include <gtest/gtest.h>

#include "tests/operator/peer.h"

namespace trainyard::net {
namespace {

Address BoundTo(const Descriptor& socket) {
  Address address;
  address.length = sizeof address.storage;
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.length);
  return address;
}

// A listener whose queue is full: to who comes then the kernel says nothing, as a machine that is off.
class Mute {
 public:
  Mute() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const Address any = *ParseAddress("127.0.0.1", 0);
    EXPECT_EQ(bind(listener_.get(), any.get(), any.length), 0);
    EXPECT_EQ(listen(listener_.get(), 0), 0);
    address_ = BoundTo(listener_);
    first_ = Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(first_.get(), address_.get(), address_.length), 0);
  }
  const Address& address() const { return address_; }

 private:
  Descriptor listener_, first_;
  Address address_;
};

constexpr double kSeconds = 1.2;

Status DialAll(const std::vector<Address>& addresses) {
  const StopFlag stop;
  Descriptor out;
  const Status status = Dial(addresses, Wait::For(kSeconds, stop), out);
  EXPECT_TRUE(!status.ok() || out.open());
  return status;
}

TEST(Dial, AnAddressThatIsSilentLeavesTimeForTheOthers) {
  const Mute first, second;
  const Peer peer(Peer::Silent);
  const Address alive = *ParseAddress("127.0.0.1", peer.port());
  EXPECT_EQ(DialAll({first.address(), second.address(), alive}).ToString(), Status::Ok().ToString());
  EXPECT_TRUE(DialAll({first.address(), second.address()}).Is(Code::kDeadline)) << "the silent ones are silent";
}

TEST(Dial, OneThatRefusesIsLeftForTheNext) {
  const Descriptor nobody(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));  // has the port, and does not listen
  const Address any = *ParseAddress("127.0.0.1", 0);
  ASSERT_EQ(bind(nobody.get(), any.get(), any.length), 0);
  const Address refuses = BoundTo(nobody);
  const Peer peer(Peer::Silent);
  const Address alive = *ParseAddress("127.0.0.1", peer.port());
  EXPECT_TRUE(DialAll({refuses}).Is(Code::kUnavailable));
  EXPECT_TRUE(DialAll({refuses, alive}).ok());
}

TEST(Dial, AStopEndsTheWait) {
  const Mute silent;
  StopFlag stop;
  stop.Set();
  Descriptor out;
  EXPECT_TRUE(Dial({silent.address()}, Wait::For(kSeconds, stop), out).Is(Code::kStopped));
}

}  // namespace
}  // namespace trainyard::net
