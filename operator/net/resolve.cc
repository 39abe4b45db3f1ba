#include "operator/net/resolve.h"

#include <netdb.h>
#include <poll.h>

#include <cstring>
#include <memory>
#include <system_error>
#include <thread>

namespace trainyard::net {
namespace {

// What the thread and the one who waits share; the last of them lets go of it.
struct LookUp {
  StopFlag done;
  int error = 0;
  std::vector<Address> addresses;
};

void Find(const std::string& host, int port, LookUp& look_up) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  look_up.error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  for (const addrinfo* entry = found; entry; entry = entry->ai_next) {
    Address address;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.length = entry->ai_addrlen;
    look_up.addresses.push_back(address);
  }
  if (found) freeaddrinfo(found);
  look_up.done.Set();
}

}  // namespace

Result<std::vector<Address>> Resolve(const std::string& host, int port, const Wait& wait) {
  if (const std::optional<Address> literal = ParseAddress(host, port)) return std::vector{*literal};
  const auto look_up = std::make_shared<LookUp>();
  try {
    std::thread([host, port, look_up] { Find(host, port, *look_up); }).detach();
  } catch (const std::system_error& error) {  // a limit on processes, which others may keep at its end
    return Status(Code::kUnavailable, "look up " + host + ": no thread can be started: " + error.code().message());
  }
  // The flag is asked, not only the descriptor: what the other thread wrote is ours from then on.
  while (!look_up->done) {
    if (Status status = WaitFor(look_up->done.descriptor(), POLLIN, wait); !status.ok())
      return status.With("look up " + host);
  }
  if (look_up->addresses.empty())
    return Status(Code::kUnavailable, "look up " + host + ": " + gai_strerror(look_up->error));
  return look_up->addresses;
}

}  // namespace trainyard::net
