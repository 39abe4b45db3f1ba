// What the trainer does before everything else.
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

// Loading LibTorch's initialisers takes a quarter of a second, in which SIGTERM would kill, or be
// ignored where this is PID 1 of a container. The C library runs .preinit_array before them; blocked
// signals wait for launch and for InstallStopHandlers, and main lets them through for the rest.
// Nothing is initialised yet, a sanitizer's memory neither: a plain system call.
__attribute__((no_sanitize("address", "thread"))) void BlockStopSignals() {
  unsigned long mask = (1ul << (SIGTERM - 1)) | (1ul << (SIGINT - 1));
  // As StopSignalSet has it. The kernel's own struct, of which the handler comes first.
  unsigned long hangup[8] = {};
  if (syscall(SYS_rt_sigaction, SIGHUP, nullptr, hangup, sizeof mask) == 0 &&
      hangup[0] != reinterpret_cast<unsigned long>(SIG_IGN))
    mask |= 1ul << (SIGHUP - 1);
  syscall(SYS_rt_sigprocmask, SIG_BLOCK, &mask, nullptr, sizeof mask);
}

// A descriptor that is closed is the next one that something opens: what is written to standard error would go into a
// socket, or into a file.
__attribute__((no_sanitize("address", "thread"))) void OpenClosedStreams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (syscall(SYS_fcntl, fd, F_GETFD) < 0) syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR);  // takes the lowest
  }
}

__attribute__((no_sanitize("address", "thread"))) void FirstOfAll() {
  BlockStopSignals();
  OpenClosedStreams();
}

__attribute__((section(".preinit_array"), used)) void (*before_initialisers)() = FirstOfAll;

}  // namespace
