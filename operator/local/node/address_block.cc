#include "operator/local/node/address_block.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>

namespace trainyard::local {
namespace {

constexpr int kBlocks = kLastBlock - kFirstBlock + 1;

// A socket's name in the abstract namespace, which is the network namespace's as the loopback addresses are, and which
// goes with the process (unix(7)). -1: someone has it.
int Hold(int block) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "trainyard-127." + std::to_string(block);
  std::copy(name.begin(), name.end(), address.sun_path + 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const int held = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (held < 0 || bind(held, reinterpret_cast<const sockaddr*>(&address), length) == 0) return held;
  close(held);
  return -1;
}

}  // namespace

AddressBlock::AddressBlock() {
  std::random_device random;
  const int first = std::uniform_int_distribution<int>(0, kBlocks - 1)(random);
  for (int i = 0; i < kBlocks && held_ < 0; ++i) {
    number_ = kFirstBlock + (first + i) % kBlocks;
    held_ = Hold(number_);
  }
}

AddressBlock::~AddressBlock() {
  if (held_ >= 0) close(held_);
}

}  // namespace trainyard::local
