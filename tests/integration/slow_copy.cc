// Preloaded into a trainer: large copies take their time in every thread but the first, which computes.
// So the copy of a checkpoint surely lasts longer than the step that runs beside it.
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

extern "C" void* memcpy(void* to, const void* from, size_t size) noexcept {
  if (size >= 64 << 10 && syscall(SYS_gettid) != getpid()) usleep(50'000);
  return std::memmove(to, from, size);
}
