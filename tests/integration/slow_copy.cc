// Preloaded into a trainer: large copies take their time in every thread but the first, which computes.
// So the copy of a checkpoint surely lasts longer than the step that runs beside it. With SLOW_SYNC_MS in the
// environment so do what makes a file durable, and with it a save.
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

extern "C" void* memcpy(void* to, const void* from, size_t size) noexcept {
  if (size >= 64 << 10 && syscall(SYS_gettid) != getpid()) usleep(50'000);
  return std::memmove(to, from, size);
}

extern "C" int fsync(int file) {
  if (const char* milliseconds = getenv("SLOW_SYNC_MS")) usleep(1000 * static_cast<useconds_t>(atoi(milliseconds)));
  return static_cast<int>(syscall(SYS_fsync, file));
}
