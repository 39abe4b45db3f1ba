#include "trainer/selftest.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/listen.h"
#include "trainer/base/text.h"
#include "trainer/comm/c10d_store.h"
#include "trainer/comm/gloo.h"
#include "trainer/metrics/status_server.h"

namespace trainyard {
namespace {

constexpr std::chrono::seconds kDeadline(30);
constexpr size_t kNumbers = 1 << 20;
constexpr int kRepeats = 5;

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Runs `check` in a process of its own; whether it returned true there.
pid_t Fork(const std::function<bool()>& check) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) throw Error(ExitCode::kInternal, "cannot start a process");
  if (child == 0) {
    bool good = false;
    try {
      good = check();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "trainyard: selftest: %s\n", error.what());
    }
    _exit(good ? 0 : 1);
  }
  return child;
}

bool Succeeded(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// What a rank of the two does. Each sum must be what can be said beforehand, to the bit. Returns the seconds of a sum;
// negative: a wrong one.
double Exchange(int rank, const std::string& address, int port, int listening) {
  const auto store =
      std::make_shared<C10dStore>(C10dStoreOptions{.host = address,
                                                   .port = port,
                                                   .host_here = rank == 0,
                                                   .listen_fd = rank == 0 ? std::optional(listening) : std::nullopt,
                                                   .timeout = kDeadline,
                                                   .stop = {}});
  const auto group = MakeGlooCommunicator(store, {.rank = rank,
                                                  .size = 2,
                                                  .interface = address,
                                                  .rendezvous_timeout = kDeadline,
                                                  .collective_timeout = kDeadline});
  const auto begin = std::chrono::steady_clock::now();
  bool good = true;
  std::vector<double> values(kNumbers);
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>((rank + 1) * (i + repeat));
    group->AllReduceNow(values, "selftest");
    for (size_t i = 0; i < values.size(); ++i) good = good && values[i] == static_cast<double>(3 * (i + repeat));
  }
  const double seconds = SecondsSince(begin) / kRepeats;
  const std::vector<int64_t> mine(static_cast<size_t>(rank) + 1, rank + 7);
  good = good && group->AllGatherNow(mine, "selftest") == std::vector<int64_t>{7, 8, 8};
  group->Barrier("selftest");
  return good ? seconds : -1;
}

// Returns the seconds of a sum; negative: the other process failed, or a sum was wrong.
double ExchangeOfTwo(const std::string& address) {
  const auto [listening, port] = Listen("the selftest's port", address, 0);
  const pid_t other = Fork([&, at = port, fd = listening] {
    close(fd);
    return Exchange(1, address, at, -1) >= 0;
  });
  double seconds = -1;
  try {
    seconds = Exchange(0, address, port, listening);
  } catch (...) {
    Succeeded(other);  // it is waited for
    throw;
  }
  return Succeeded(other) ? seconds : -1;
}

bool Communication() {
  const std::string address = StatusAddressFromEnvironment();
  std::string why = "a sum was wrong";
  try {
    if (const double seconds = ExchangeOfTwo(address); seconds >= 0) {
      std::printf("good  communication: two processes on %s, sums of %zu numbers in %.1f ms\n", address.c_str(),
                  kNumbers, seconds * 1e3);
      return true;
    }
  } catch (const std::exception& error) {
    why = error.what();
  }
  std::printf("BAD   communication: two processes on %s: %s\n", address.c_str(), why.c_str());
  return false;
}

void Durability(const fs::path& file) {
  const std::string first(1 << 20, 'a'), second(1 << 20, 'b');
  WriteFileAtomic(file, first);
  const auto begin = std::chrono::steady_clock::now();
  WriteFileAtomic(file, second);
  const double seconds = SecondsSince(begin);
  if (ReadFile(file) != second) throw StorageError("a file that was replaced has not the new content");
  SyncDirectory(file.parent_path());
  std::printf("good  storage: a file takes another's place, with fsync of file and folder, in %.1f ms for 1 MiB\n",
              seconds * 1e3);
}

void Locks(const fs::path& file) {
  const auto locks = [&] {
    const int fd = open(file.c_str(), O_RDWR | O_CLOEXEC);
    const bool got = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
    close(fd);
    return got;
  };
  const int held = open(file.c_str(), O_RDWR | O_CLOEXEC);
  if (held < 0 || flock(held, LOCK_EX | LOCK_NB) != 0) throw StorageError("flock fails");
  const bool excluded = !Succeeded(Fork(locks));
  close(held);
  if (!excluded) throw StorageError("flock lets two processes in");
  if (!Succeeded(Fork(locks))) throw StorageError("flock is not given back");
  std::printf("good  storage: a lock (flock) holds between processes, and is given back\n");
}

bool Storage(const fs::path& directory) {
  const fs::path file = directory / Format("trainyard-selftest-%d", static_cast<int>(getpid()));
  bool good = true;
  try {
    Durability(file);
    Locks(file);
    fs::remove(file);
    std::printf("      %s has %s free\n", directory.c_str(), HumanBytes(FreeBytes(directory)).c_str());
  } catch (const std::exception& error) {
    std::printf("BAD   storage in %s: %s\n", directory.c_str(), error.what());
    good = false;
  }
  std::error_code ignored;
  fs::remove(file, ignored);
  return good;
}

}  // namespace

int SelfTest(const fs::path& directory) {
  RequireWritableDirectory(directory, "--dir");
  const bool storage = Storage(directory), communication = Communication();
  std::printf(
      "not checked: what a loss of power leaves, locks and renames between nodes, the network between nodes, GPUs\n");
  if (!communication) return static_cast<int>(ExitCode::kPeer);
  return storage ? 0 : static_cast<int>(ExitCode::kStorage);
}

}  // namespace trainyard
